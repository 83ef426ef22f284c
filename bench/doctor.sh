#!/bin/sh
# The doctor on files of the largest accepted size, of every kind (bench/doctor/worst.py).
set -eu
cd "$(dirname "$0")/.."
python3 bench/doctor/worst.py build/release/trireme "${DOCTOR_MIB:-31.9}"
