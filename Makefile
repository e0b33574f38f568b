# Everything runs through emulator/run, which builds what is missing and sets the emulator's environment.
STACK ?=
CONFIG ?=
PICK = --stack "$(STACK)" --config "$(CONFIG)"
NAME = $(or $(STACK),$(basename $(notdir $(CONFIG))),dev)
# What the stack needs is built before the first command on it, beside the Python environment.
TOOLS = --tools "$$(python3 ops/needed_tools.py "$(or $(CONFIG),Pulumi.$(NAME).yaml)")"
EMULATOR = GKE_AI_PURPOSE="stack $(NAME)" emulator/run $(TOOLS) python -m ops.emulated
CODE = __main__.py catalog components docs examples/consumer emulator ops outputs package policy report settings tests

.PHONY: setup check coverage up status verify smoke doctor preview policies preview-json report pictures crds recover down test test-long lint docs record bench
setup:  ## create the Python environment and build every tool; other targets build what they need
	emulator/run --tools all true
up:  ## deploy to the emulated cloud: make up [STACK=dev] [CONFIG=examples/x.yaml]
	@$(EMULATOR) up $(PICK)
status:  ## what runs, what waits and why
	@$(EMULATOR) status $(PICK)
verify:  ## compare what the stack relies on with its cluster, and measure it
	@$(EMULATOR) verify $(PICK)
smoke:  ## ask every server of a stack as its users would
	@$(EMULATOR) smoke $(PICK)
# Outside the emulator: it asks for what this machine has, and Google Cloud.
doctor:  ## what is missing before a first up on Google Cloud: make doctor [STACK=prod]
	@"$$(emulator/run printenv GKE_AI_PYTHON)" -m ops.doctor $(PICK)
preview:  ## what an up would do
	@$(EMULATOR) preview $(PICK)
policies:  ## what the policies say of an up: make policies [STACK=prod] [CONFIG=…]
	@$(EMULATOR) policies $(PICK)
preview-json:  ## Pulumi's JSON of a preview on a new stack
	@$(EMULATOR) preview-json $(PICK)
report:  ## a preview as one page for reviewers: make report [STACK=prod] [CONFIG=…] [PRICES=prices.yaml]
	@$(EMULATOR) report $(PICK) $(if $(PRICES),--prices "$(PRICES)")
pictures:  ## the pictures in docs/pictures; the timeline from its recording
	emulator/run python -m docs.pictures
crds:  ## before an up that brings another version of JobSet
	@$(EMULATOR) crds $(PICK)
recover:  ## after a killed up
	@$(EMULATOR) recover $(PICK)
down:  ## take a stack down
	@$(EMULATOR) down $(PICK)
# Formatting, style, types, and every test that needs no cluster.
check:  ## within two minutes
	emulator/run ruff format --check --quiet .
	emulator/run ruff check --quiet .
	emulator/run mypy --strict $(CODE)
	emulator/run pytest -m "not cluster and not long" -n 2 --dist worksteal --no-header -q
# Without the tests that need a cluster, and without what a test runs in another process.
coverage:  ## which lines and branches of the product the tests of `make check` run
	emulator/run pytest -m "not cluster and not long" -n 2 --dist worksteal --no-header -q --cov --cov-report term
# By file, side by side: most of its time a test waits for a cluster of its own.
test:  ## everything CI runs
	emulator/run --tools all pytest -m "not long" -n 2 --dist loadfile --durations 12
test-long:  ## more repetitions, more kill points
	emulator/run --tools all pytest
lint:  ## formatter, linter, strict types, workflows, sizes
	emulator/run ruff format --check .
	emulator/run ruff check .
	emulator/run mypy --strict $(CODE)
	emulator/run actionlint -shellcheck= -pyflakes= .github/workflows/*.yml
	emulator/run zizmor --offline --persona=pedantic --no-progress --quiet .github
	@emulator/run python -m tests.sizes
docs:  ## write the pages that are made from code
	emulator/run python -m docs
record:  ## before a release: what this version leaves in its stacks, for the upgrades to come
	emulator/run python -m tests.recorded
bench:  ## speeds as ratios within one run
	emulator/run python -m tests.bench
