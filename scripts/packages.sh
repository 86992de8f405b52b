# shellcheck shell=bash disable=SC2034
# The Debian and Ubuntu packages that dtrain needs; sourced by setup.sh. (nvcc needs g++, cpack dpkg-dev and file.)
BUILD_PACKAGES="gcc g++ cmake ninja-build pkg-config libopenmpi-dev openmpi-bin libdnnl-dev
    libjpeg-dev libpng-dev libwebp-dev libtiff-dev libgif-dev zlib1g-dev libcjson-dev libarchive-dev libxxhash-dev
    librandom123-dev libhwloc-dev dpkg-dev file"
TEST_PACKAGES="libcmocka-dev ccache lld python3 python3-numpy python3-pil python3-jsonschema python3-torch
    python3-torchvision python3-scipy python3-sklearn shellcheck libjpeg-turbo-progs
    iproute2 openssh-server openssh-client clang-format pyflakes3 lintian libopenblas0-pthread mandoc strace zsh"
# For one or two tests each, which are skipped where these cannot be had (Ubuntu has no such Chromium).
FEW_TESTS_PACKAGES="chromium-headless-shell slurmctld slurmd slurm-client python3-pandas
    nbdkit nbdkit-plugin-python libnbd-bin xfsprogs
    python3-prometheus-client python3-venv"
