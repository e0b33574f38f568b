# Every target runs through emulator/run, which builds missing tools and sets the emulator's environment.
#
# These variables of a user are options of gke-ai: STACK=prod is --stack prod. They are texts: make expands nothing in them,
# and exports them as GKE_AI_STACK and so on, so that no shell runs what they contain. tests/engine/test_makefile.py tries each.
INPUTS := STACK CONFIG RUN RUN_FILE SERVER SNAPSHOT MANIFESTS BASE MINUTES UNAVAILABLE UPGRADE TRACE COMPARE JOBS SEED SEEDS BEGIN RATES BURST PRICES \
	REHEARSAL SIMULATION JSON PICTURE BLOCKS MARKDOWN INTERVAL ALL NAMESPACE QUEUE SHARES
# Those of the targets for maintainers.
OTHERS := FILES FAULT PART WITHOUT_CLUSTER PASSING PYTHON PROGRAMS FOLDER
$(foreach input,$(INPUTS) $(OTHERS),$(eval override $(input) := $$(value $(input))))
$(foreach input,$(INPUTS),$(if $($(input)),$(eval export GKE_AI_$(input) := $$(value $(input)))))
$(foreach input,$(OTHERS),$(if $($(input)),$(eval export $(input))))
# Builds the tools that the verb needs before it, in parallel with the Python environment. If python3 is missing or too
# old to list them, each is built when it is first run.
GKE_AI = GKE_AI_PURPOSE="stack $(NAME)" emulator/run --tools "$$(python3 gke_ai/cli/tools.py $@ 2>/dev/null)" gke-ai $@
# Default: the name of the configuration without its suffix, or dev.
NAME = $${GKE_AI_STACK:-$$(basename -- "$${GKE_AI_CONFIG:-dev.yaml}" | sed 's/[.][^.]*$$//')}
# Every test that needs no cluster and is not slow, with the tools that these tests run. Three processes keep two cores busy: some wait.
QUICK_TESTS = emulator/run --tools stack,helm,prometheus,pulumi-yaml,actionlint \
	pytest -m "not cluster and not slow and not nightly" -n 3 --dist worksteal --no-header -q
# At the end it says where the time went. `-m` puts the project on the path, where pytest finds the plugin.
MEASURED = emulator/run --tools tests python -m pytest -p maintain.times
# The components are checked under the name by which they are imported: gke_ai/components leads to them.
CODE = __main__.py examples/consumer examples/python examples/training emulator gke_ai gke_ai_outputs maintain policy tests
# pyproject.toml has the settings.
SPELLING = git ls-files -z | xargs -0 emulator/run codespell

.PHONY: setup check coverage up status runs snapshot when logs remove-run verify smoke load doctor preview policies preview-json report rehearse simulate site pictures recover down style tests-without-cluster test-python test test-nightly test-vllm faults lint docs sdks record bench official coverage-all
setup:  ## create the Python environment and build every tool; other targets build what they need
	emulator/run --tools all true
up:  ## deploy a stack to the emulator: make up [STACK=dev] [CONFIG=examples/x.yaml]
status:  ## print what runs, what waits and why: make status [STACK=dev] [ALL=1] [NAMESPACE=…] [QUEUE=…] [SHARES=1] [BLOCKS=out.svg]
runs:  ## list the runs of a stack: state, restarts, newest checkpoint
snapshot:  ## print the state of a stack's cluster, with listed fields only: make snapshot STACK=prod > snapshot.json
when:  ## ask Kueue whether a run would start: make when STACK=prod RUN_FILE=run.yaml|SERVER=name [SNAPSHOT=snapshot.json] [INTERVAL=1] [JSON=out.json]
logs:  ## print the logs of a run, its restarts and newest checkpoint: make logs RUN=NAME [STACK=…]
remove-run:  ## delete the Job or JobSet of a run that has ended: make remove-run RUN=NAME [STACK=…]
verify:  ## compare what the stack relies on with its cluster, and measure it
smoke:  ## send requests to every server of a stack
load:  ## send requests through the gateway at stated rates: make load [STACK=…] [RATES=1,2,4] [BURST=200] [JSON=out.json] [PICTURE=out.svg]
preview:  ## preview a stack, with the policies
policies:  ## print the policy results of a preview: make policies [STACK=prod] [CONFIG=…]
preview-json:  ## print Pulumi's JSON of a preview on a new stack
report:  ## write a preview as one page for reviewers: make report [STACK=prod] [CONFIG=…] [PRICES=prices.yaml] [REHEARSAL=out.json] [SIMULATION=day.json]
rehearse:  ## say what a change does in the queue: make rehearse STACK=prod [CONFIG=…] or MANIFESTS=folder, [BASE=…] [SNAPSHOT=…] [MINUTES=30] [UNAVAILABLE=spot] [UPGRADE=kueue|pool/gpu] [JSON=out.json]
simulate:  ## replay a day of submissions: make simulate STACK=prod [CONFIG=…] [COMPARE="a.yaml b.yaml"] [TRACE=trace.csv] [JOBS=200] [SEED=1] [SEEDS=5] [BEGIN=2027-03-13T18:00:00Z] [PRICES=prices.yaml] [JSON=out.json] [PICTURE=out.svg] [BLOCKS=out.svg]
recover:  ## repair the state after a killed up
down:  ## delete a stack
up status runs snapshot when logs remove-run verify smoke load preview policies preview-json report rehearse simulate recover down:
	@$(GKE_AI)
# Runs outside the emulator, because it checks this machine and Google Cloud.
doctor:  ## list what is missing for Google Cloud: make doctor [STACK=prod]
	@python=$$(emulator/run printenv GKE_AI_PYTHON) && exec "$$python" -m gke_ai $@
site:  ## build the documentation as a site in .local/site, which needs no network
	@emulator/run --tools development python -m maintain.pages.site
pictures:  ## write the pictures in docs/pictures
	emulator/run --tools development python -m maintain.pages.pictures
# Takes about two minutes.
check:  ## check formatting, style, types and spelling, and run every test that is quick and needs no cluster and no engine
	@$(MAKE) --no-print-directory --jobs 2 style tests-without-cluster
style:
	emulator/run ruff format --check --quiet .
	emulator/run ruff check --quiet .
	emulator/run mypy --strict $(CODE)
	$(SPELLING)
tests-without-cluster:  # the last -m counts
	$(QUICK_TESTS) -m "not cluster and not slow and not nightly and not engine"
test-python:  ## run the quick tests on another Python: make test-python PYTHON=python3.13
	GKE_AI_INTERPRETER="$$PYTHON" $(QUICK_TESTS)
# Does not measure tests that need a cluster, nor code that a test runs in another process: see coverage-all.
coverage:  ## print which lines and branches the quick tests run
	$(QUICK_TESTS) --cov --cov-report term
# Coverage starts with every Python process that has these variables. The emulator's clusters and pods don't have them.
coverage-all:  ## print which lines and branches all tests run, in every process: make coverage-all [FILES=tests/cluster/test_token.py]
	emulator/run coverage erase
	-set -f; COVERAGE_PROCESS_START="$$PWD/pyproject.toml" COVERAGE_FILE="$$PWD/.coverage" \
		emulator/run --tools all pytest -m "not nightly" -n 3 --dist loadfile $$FILES
	emulator/run coverage combine --quiet
	emulator/run coverage report
# Runs three test files at a time, because a test waits for its cluster for most of its time.
test:  ## run every test that CI runs
	$(MEASURED) -m "not nightly" -n 3 --dist loadfile --no-loadscope-reorder --durations 12
test-nightly:  ## run the tests that repeat, compare versions, kill or soak: make test-nightly [PART=kills]
	@emulator/run --tools all python -m maintain.nightly "$$PART"
# Not in CI: maintain/README.md says what it takes.
test-vllm:  ## start a real vLLM on the CPU with what the program registers, and record what the stub is compared with
	emulator/run python -m maintain.real_vllm
faults:  ## check that the tests find known faults: make faults [FAULT=name] [WITHOUT_CLUSTER=1] [PASSING=1]
	@emulator/run --tools all python -m maintain.faults --fault "$$FAULT" $(if $(WITHOUT_CLUSTER),--without-cluster) $(if $(PASSING),--passing)
lint:  ## check formatting, style, types, spelling and workflows; print sizes
	emulator/run ruff format --check .
	emulator/run ruff check .
	emulator/run mypy --strict $(CODE)
	$(SPELLING)
	emulator/run actionlint -shellcheck= -pyflakes= .github/workflows/*.yml \
		examples/manifests/.github/workflows/*.yml
	emulator/run zizmor --offline --persona=pedantic --no-progress --quiet .github
	@emulator/run python -m maintain.sizes
docs:  ## write the generated pages in docs
	emulator/run --tools development python -m maintain.pages
sdks:  ## write SDKs of the package for Node, Go and Python, with examples: make sdks FOLDER=…
	@emulator/run --tools development python -m maintain.sdks "$$FOLDER"
record:  ## before a release, record the state that this version leaves in its stacks
	emulator/run --tools development python -m maintain.recorded
bench:  ## print speeds as ratios
	emulator/run --tools development python -m maintain.bench
official:  ## compare the emulator's Pulumi plugins with official ones: make official PROGRAMS=folder
	@emulator/run --tools stack,helm python -m maintain.official $${PROGRAMS:+--programs "$$PROGRAMS"}
