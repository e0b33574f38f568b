# Every target runs through emulator/run, which builds missing tools and sets the emulator's environment.
#
# These variables of a user are texts: make expands nothing in them. A recipe takes them from its environment, as "$$STACK",
# so that no shell runs what they contain. tests/test_makefile.py tries it with each of them.
INPUTS := STACK CONFIG RUN RUN_FILE SNAPSHOT MANIFESTS BASE MINUTES UNAVAILABLE UPGRADE TRACE COMPARE JOBS SEED SEEDS PRICES \
	REHEARSAL SIMULATION JSON PICTURE MARKDOWN FILES OF FAULT WITHOUT_CLUSTER PASSING INTERVAL ALL NAMESPACE QUEUE
$(foreach input,$(INPUTS),$(eval override $(input) := $$(value $(input)))$(if $($(input)),$(eval export $(input))))
PICK = --stack "$$STACK" --config "$$CONFIG"
# Default: the name of the configuration without its suffix, or dev.
NAME = $${STACK:-$$(basename -- "$${CONFIG:-dev.yaml}" | sed 's/[.][^.]*$$//')}
# Builds the tools that the stack needs before the first command on it, in parallel with the Python environment.
TOOLS = --tools "$$(python3 gke_ai/ops/needed_tools.py "$${CONFIG:-Pulumi.$${STACK:-dev}.yaml}")$(if $(filter-out pool/%,$(UPGRADE)),$(COMMA)previous)"
COMMA = ,
# A rehearsal of manifests runs no Pulumi.
CLUSTER_TOOLS = kubernetes,etcd,kwok,helm,kueue,jobset
EMULATOR = GKE_AI_PURPOSE="stack $(NAME)" emulator/run $(TOOLS) python -m gke_ai.ops.emulated
# Every test that needs no cluster and is not slow, with the tools that these tests run. Three processes keep two cores busy: some wait.
QUICK_TESTS = emulator/run --tools stack,helm,prometheus,pulumi-yaml,actionlint \
	pytest -m "not cluster and not slow and not long" -n 3 --dist worksteal --no-header -q
# With the record that `make times` prints. `-m` puts the project on the path, where pytest finds the plugin.
MEASURED = emulator/run --tools all python -m pytest -p maintain.times.plugin
# The components are checked under the name by which they are imported: gke_ai/components leads to them.
CODE = __main__.py examples/consumer examples/python examples/training emulator gke_ai gke_ai_outputs maintain policy tests

.PHONY: setup check coverage up status runs snapshot when logs remove-run verify smoke doctor preview policies preview-json report rehearse simulate site pictures crds recover down style tests-without-cluster test test-long test-vllm times faults lint docs record bench coverage-all
setup:  ## create the Python environment and build every tool; other targets build what they need
	emulator/run --tools all true
up:  ## deploy a stack to the emulator: make up [STACK=dev] [CONFIG=examples/x.yaml]
	@$(EMULATOR) up $(PICK)
status:  ## print what runs, what waits and why: make status [STACK=dev] [ALL=1] [NAMESPACE=…] [QUEUE=…]
	@$(EMULATOR) status $(PICK) $(if $(ALL),--all) --namespace "$$NAMESPACE" --queue "$$QUEUE"
runs:  ## list the runs of a stack: state, restarts, newest checkpoint
	@$(EMULATOR) runs $(PICK)
snapshot:  ## print the state of a stack's cluster, with listed fields only: make snapshot STACK=prod > snapshot.json
	@$(EMULATOR) snapshot $(PICK)
when:  ## ask Kueue whether a run would start: make when STACK=prod RUN_FILE=run.yaml [SNAPSHOT=snapshot.json] [INTERVAL=1] [JSON=out.json]
	@emulator/run --tools $(CLUSTER_TOOLS),stack$(if $(INTERVAL),$(COMMA)kueue-simulation) python -m gke_ai.forecast.when --stack "$(NAME)" $(if $(CONFIG),--config "$$CONFIG") $(if $(SNAPSHOT),--snapshot "$$SNAPSHOT") $(if $(JSON),--json "$$JSON") $(if $(INTERVAL),--interval) -- "$$RUN_FILE"
logs:  ## print the logs of a run, its restarts and newest checkpoint: make logs RUN=NAME [STACK=…]
	@$(EMULATOR) logs $(PICK) --run "$$RUN"
remove-run:  ## delete the Job or JobSet of a run that has ended: make remove-run RUN=NAME [STACK=…]
	@$(EMULATOR) remove-run $(PICK) --run "$$RUN"
verify:  ## compare what the stack relies on with its cluster, and measure it
	@$(EMULATOR) verify $(PICK)
smoke:  ## send requests to every server of a stack
	@$(EMULATOR) smoke $(PICK)
# Runs outside the emulator, because it checks this machine and Google Cloud.
doctor:  ## list what is missing for Google Cloud: make doctor [STACK=prod]
	@"$$(emulator/run printenv GKE_AI_PYTHON)" -m gke_ai.ops.doctor $(PICK)
preview:  ## preview a stack, with the policies
	@$(EMULATOR) preview $(PICK)
policies:  ## print the policy results of a preview: make policies [STACK=prod] [CONFIG=…]
	@$(EMULATOR) policies $(PICK)
preview-json:  ## print Pulumi's JSON of a preview on a new stack
	@$(EMULATOR) preview-json $(PICK)
report:  ## write a preview as one page for reviewers: make report [STACK=prod] [CONFIG=…] [PRICES=prices.yaml] [REHEARSAL=out.json] [SIMULATION=day.json]
	@$(EMULATOR) report $(PICK) $(if $(PRICES),--prices "$$PRICES") $(if $(REHEARSAL),--rehearsal "$$REHEARSAL") \
		$(if $(SIMULATION),--simulation "$$SIMULATION")
rehearse:  ## say what a change does in the queue: make rehearse STACK=prod [CONFIG=…] or MANIFESTS=folder, [BASE=…] [SNAPSHOT=…] [MINUTES=30] [UNAVAILABLE=spot] [UPGRADE=kueue|pool/gpu] [JSON=out.json]
	@emulator/run $(if $(MANIFESTS),--tools $(CLUSTER_TOOLS),$(TOOLS)) python -m gke_ai.forecast.rehearse --stack "$(NAME)" --config "$$CONFIG" \
		--manifests "$$MANIFESTS" --base "$$BASE" --snapshot "$$SNAPSHOT" \
		--json "$$JSON" --picture "$$PICTURE" --markdown "$$MARKDOWN" --prices "$$PRICES" --unavailable "$$UNAVAILABLE" --upgrade "$$UPGRADE" \
		$(if $(MINUTES),--minutes "$$MINUTES")
simulate:  ## replay a day of submissions: make simulate STACK=prod [CONFIG=…] [COMPARE="a.yaml b.yaml"] [TRACE=trace.csv] [JOBS=200] [SEED=1] [SEEDS=5] [PRICES=prices.yaml] [JSON=out.json] [PICTURE=out.svg]
	@set -f; for file in $$COMPARE; do set -- "$$@" --compare "$$file"; done; \
		emulator/run --tools stack,helm,kueue-simulation python -m gke_ai.forecast.simulate day --stack "$(NAME)" --config "$$CONFIG" \
		"$$@" --trace "$$TRACE" --json "$$JSON" --picture "$$PICTURE" --prices "$$PRICES" \
		$(if $(JOBS),--jobs "$$JOBS") $(if $(SEED),--seed "$$SEED") $(if $(SEEDS),--seeds "$$SEEDS")
site:  ## build the documentation as a site in .local/site, which needs no network
	@emulator/run python -m maintain.pages.site
pictures:  ## write the pictures in docs/pictures
	emulator/run python -m maintain.pages.pictures
crds:  ## upgrade JobSet's CRD, before an up that changes JobSet's version
	@$(EMULATOR) crds $(PICK)
recover:  ## repair the state after a killed up
	@$(EMULATOR) recover $(PICK)
down:  ## delete a stack
	@$(EMULATOR) down $(PICK)
# Takes two to three minutes.
check:  ## check formatting, style and types, and run every test that is quick and needs no cluster
	@$(MAKE) --no-print-directory --jobs 2 style tests-without-cluster
style:
	emulator/run ruff format --check --quiet .
	emulator/run ruff check --quiet .
	emulator/run mypy --strict $(CODE)
tests-without-cluster:
	$(QUICK_TESTS)
# Does not measure tests that need a cluster, nor code that a test runs in another process: see coverage-all.
coverage:  ## print which lines and branches the tests of `make check` run
	$(QUICK_TESTS) --cov --cov-report term
# Coverage starts with every Python process that has these variables. The emulator's clusters and pods don't have them.
coverage-all:  ## print which lines and branches all tests run, in every process: make coverage-all [FILES=tests/end_to_end/test_token.py]
	emulator/run coverage erase
	-set -f; COVERAGE_PROCESS_START="$$PWD/pyproject.toml" COVERAGE_FILE="$$PWD/.coverage" \
		emulator/run --tools all pytest -m "not long" -n 3 --dist loadfile $$FILES
	emulator/run coverage combine --quiet
	emulator/run coverage report
# Runs three test files at a time, because a test waits for its cluster for most of its time.
test:  ## run every test that CI runs
	$(MEASURED) -m "not long" -n 3 --dist loadfile --durations 12
test-long:  ## run all tests, with more repetitions and more kill points
	$(MEASURED)
# Not in CI: CONTRIBUTING.md says what it takes.
test-vllm:  ## start a real vLLM on the CPU with what the program registers, and record what the stub is compared with
	emulator/run python -m maintain.real_vllm
times:  ## print where the time of the last whole `make test` went, by test file and program: make times [OF=test-long]
	@emulator/run python -m maintain.times $(if $(OF),--of "$$OF")
faults:  ## check that the tests find known faults: make faults [FAULT=name] [WITHOUT_CLUSTER=1] [PASSING=1]
	@emulator/run --tools all python -m maintain.faults --fault "$$FAULT" $(if $(WITHOUT_CLUSTER),--without-cluster) $(if $(PASSING),--passing)
lint:  ## check formatting, style, types and workflows; print sizes
	emulator/run ruff format --check .
	emulator/run ruff check .
	emulator/run mypy --strict $(CODE)
	emulator/run actionlint -shellcheck= -pyflakes= .github/workflows/*.yml \
		examples/manifests/.github/workflows/*.yml
	emulator/run zizmor --offline --persona=pedantic --no-progress --quiet .github
	@emulator/run python -m maintain.sizes
docs:  ## write the generated pages in docs
	emulator/run python -m maintain.pages
record:  ## before a release, record the state that this version leaves in its stacks
	emulator/run python -m maintain.recorded
bench:  ## print speeds as ratios
	emulator/run python -m maintain.bench
