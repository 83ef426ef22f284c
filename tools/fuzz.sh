#!/bin/sh
# Builds every libFuzzer harness and runs each for FUZZ_SECONDS on its seeds. New finds stay in
# build/fuzz/corpus; an input that fails belongs in tests/fuzz/seeds/<name>/ with the mend.
set -eu
cd "$(dirname "$0")/.."
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz >/dev/null
cmake --build build/fuzz
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    short=${name#fuzz_}
    mkdir -p "build/fuzz/corpus/$short"
    echo "== $short"
    "build/fuzz/tests/$name" -max_total_time="${FUZZ_SECONDS:-20}" -rss_limit_mb=4096 -verbosity=0 \
        -print_final_stats=1 "build/fuzz/corpus/$short" "tests/fuzz/seeds/$short"
done
