# Short names for people. CMake does the work (CMakePresets.json); nothing is configured here.
.PHONY: all run test quick asan tsan clang lint fuzz clients bench install clean help
JOBS ?= $(shell nproc)

all: build/release/trireme  ## build build/release/trireme

build/%/build.ninja:
	@tools/need.sh test
	@cmake --preset $* >build.$*.log 2>&1 || { cat build.$*.log; rm -f build.$*.log; exit 1; }
	@mkdir -p build && mv build.$*.log build/$*/configure.log

.PHONY: build/release/trireme
build/release/trireme: build/release/build.ninja
	@cmake --build build/release -j $(JOBS) --target trireme

run: all  ## install what is missing, build, and generate text with the nano model
	@build/release/trireme run --greedy "Tell me a story about a fox."

test: build/release/build.ninja  ## build everything and run every test
	@cmake --build build/release -j $(JOBS)
	@ctest --test-dir build/release --output-on-failure -j $(JOBS)

quick: build/release/build.ninja  ## the tests that take seconds
	@cmake --build build/release -j $(JOBS)
	@ctest --test-dir build/release --output-on-failure -j $(JOBS) -L quick

asan tsan clang:  ## every test under a sanitizer, or built with clang
	@$(MAKE) build/$@/build.ninja
	@cmake --build build/$@ -j $(JOBS)
	@ctest --test-dir build/$@ --output-on-failure -j $(JOBS)

lint:  ## rooms, sizes, banned calls, format, clang-tidy
	@tools/need.sh lint
	@python3 tools/layers.py
	@python3 tools/tidy.py --report
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h')
	@$(MAKE) build/clang/build.ninja
	@git ls-files 'src/*.c' | xargs -P $(JOBS) -n 1 clang-tidy -p build/clang --quiet

fuzz:  ## build the fuzzers and run each for FUZZ_SECONDS (default 20)
	@tools/need.sh fuzz
	@tools/fuzz.sh

clients: all  ## the real openai and anthropic clients against the server (pip install openai anthropic)
	@TRIREME=build/release/trireme python3 tests/clients/real_clients.py

bench: all  ## benchmarks (never part of the tests)
	@ls bench/*.sh >/dev/null 2>&1 && for b in bench/*.sh; do $$b; done || echo "no benchmarks yet"

install: all  ## install to PREFIX (default /usr/local); DESTDIR for packages
	@cmake --build build/release -j $(JOBS) --target man
	@DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(or $(PREFIX),/usr/local)

clean:  ## remove build/
	@rm -rf build

help:  ## this list
	@grep -E '^[a-z ]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 18
