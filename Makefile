# pipewright for people: `make run` on a fresh Debian 12 machine installs what is missing, builds, and
# trains. What is missing is decided by tools/packages.txt; nothing is fetched where nothing is missing.
#
#   make TORCH=/path   take the LibTorch there instead of Debian's (build/ remembers it; TORCH= forgets it)
#   make SETUP=no      install nothing
#   make JOBS=4        as many compilers at a time (default: the number of cores)

BUILD := build
JOBS ?= $(shell nproc)
TORCH ?= $(file <$(BUILD)/.torch)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 20

.DEFAULT_GOAL := build
.NOTPARALLEL:  # the steps stand in order; ninja and ctest use the cores
.PHONY: help build run draw test bench format lint check asan tsan fuzz install clean
.PHONY: setup-build setup-tests setup-checks

setup = @TORCH='$(TORCH)' SETUP='$(SETUP)' tools/setup.sh
ctest = @ctest --test-dir $(BUILD) --output-on-failure --no-label-summary -j $(JOBS)

help:  ## this list
	@sed -n 's/^\([a-z ]*\):.*##/  make \1\t/p' Makefile | expand -t 18

setup-build:
	$(setup) build libs torch
setup-tests:
	$(setup) build libs torch tests
setup-checks:
	$(setup) build libs torch tests checks

# Ninja itself notices changed CMake files; the presets and TORCH it does not know.
configured := $(BUILD)/.configured
ifneq ($(file <$(BUILD)/.torch),$(TORCH))
.PHONY: $(configured)
endif
$(configured): CMakePresets.json | setup-build
	@mkdir -p $(BUILD)
	@tools/quietly.sh $(BUILD)/configure.log \
	  cmake --fresh --preset release $(if $(TORCH),'-DCMAKE_PREFIX_PATH=$(TORCH)')
	@printf '%s' '$(TORCH)' > $(BUILD)/.torch
	@touch $@

build: setup-build $(configured)  ## the library and the program, at build/pipewright
	@cmake --build $(BUILD) -j $(JOBS)

run_config := examples/language_model/run.toml
run: setup-build $(configured)  ## verify and train a small language model over two processes; a page about it
	@cmake --build $(BUILD) -j $(JOBS) --target pipewright_program --target pipewright_engine_program
	@rm -rf out/run
	@mkdir -p out
	@$(BUILD)/pipewright verify $(run_config)
	@$(BUILD)/pipewright launch -n 2 --log-dir out/logs -- $(BUILD)/pipewright train $(run_config)
	@$(BUILD)/pipewright report out/run --html out/report.html
	@echo "To look at it: file://$(CURDIR)/out/report.html"

draw: setup-build $(configured)  ## simulate all schedules and draw them (builds the program alone)
	@cmake --build $(BUILD) -j $(JOBS) --target pipewright_program
	@mkdir -p out
	@$(BUILD)/pipewright simulate --schedule all --ranks 4 --micro-batches 8 --html out/schedules.html
	@echo
	@echo "The drawn schedules: file://$(CURDIR)/out/schedules.html"

test: setup-tests build  ## build, and run all tests
	$(ctest) -LE check

bench: build  ## run the benchmarks
	@cmake --build $(BUILD) -j $(JOBS) --target bench

format: setup-checks  ## format all C++ files in place
	@tools/sources.sh | xargs clang-format -i

lint: setup-checks build  ## clang-tidy over all C++ files
	@tools/lint.py --build $(BUILD)

check: setup-checks build  ## what CI runs beside the tests: format, includes, lint, sanitizers, fuzz, install
	$(ctest) -L check

asan tsan: setup-tests  ## the LibTorch-free tests under a sanitizer (address and undefined; thread)
	@tools/sanitize.sh $@

fuzz: setup-checks  ## fuzz each reader for FUZZ_SECONDS
	@tools/fuzz.sh build
	@tools/fuzz.sh run $(FUZZ_SECONDS)

install: build  ## to PREFIX (/usr/local), under DESTDIR
	@DESTDIR='$(DESTDIR)' cmake --install $(BUILD) --prefix '$(PREFIX)'

clean:  ## remove everything made here
	@rm -rf $(BUILD) build-debug build-asan build-tsan build-fuzz out
