# Everything runs through local/run, which builds what is missing and sets the stand-in's environment.
STACK ?=
CONFIG ?=
STANDIN = local/run python -m local.stack
PICK = --stack "$(STACK)" --config "$(CONFIG)"
CODE = __main__.py catalog components docs examples/consumer local ops outputs package policy report settings tests

.PHONY: setup up status smoke doctor preview policies preview-json report pictures crds recover down test test-long lint docs record bench
setup:  ## build tools and the Python environment
	local/run true
up:  ## deploy to the stand-in cloud: make up [STACK=dev] [CONFIG=examples/x.yaml]
	@$(STANDIN) up $(PICK)
status:  ## what runs, what waits and why
	@$(STANDIN) status $(PICK)
smoke:  ## ask every server of a stack as its users would
	@$(STANDIN) smoke $(PICK)
# Outside the stand-in: it asks for what this machine has, and Google Cloud.
doctor:  ## what is missing before a first up on Google Cloud: make doctor [STACK=prod]
	@"$$(local/run printenv GKE_AI_PYTHON)" -m ops.doctor $(PICK)
preview:  ## what an up would do
	@$(STANDIN) preview $(PICK)
policies:  ## what the policies say of an up: make policies [STACK=prod] [CONFIG=…]
	@$(STANDIN) policies $(PICK)
preview-json:  ## Pulumi's JSON of a preview on a new stack
	@$(STANDIN) preview-json $(PICK)
report:  ## a preview as one page for reviewers: make report [STACK=prod] [CONFIG=…] [PRICES=prices.yaml]
	@$(STANDIN) report $(PICK) $(if $(PRICES),--prices "$(PRICES)")
pictures:  ## the pictures in docs/pictures; the timeline from its recording
	local/run python -m docs.pictures
crds:  ## before an up that brings another version of JobSet
	@$(STANDIN) crds $(PICK)
recover:  ## after a killed up
	@$(STANDIN) recover $(PICK)
down:  ## take a stack down
	@$(STANDIN) down $(PICK)
# By file, side by side: most of its time a test waits for a cluster of its own.
test:  ## everything CI runs
	local/run pytest -m "not long" -n 2 --dist loadfile --durations 12
test-long:  ## more repetitions, more kill points
	local/run pytest
lint:  ## formatter, linter, strict types, workflows, sizes
	local/run ruff format --check .
	local/run ruff check .
	local/run mypy --strict $(CODE)
	local/run actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
	local/run zizmor --offline --persona=pedantic --no-progress --quiet .github
	@local/run python -m tests.sizes
docs:  ## write the pages that are made from code
	local/run python -m docs
record:  ## before a release: what this version leaves in its stacks, for the upgrades to come
	local/run python -m tests.recorded
bench:  ## speeds as ratios within one run
	local/run python -m tests.bench
