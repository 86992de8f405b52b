#!/usr/bin/env bash
# `cmake --install` gives a tree that works wherever it is moved: configurations by name, manual pages, the
# quick start. The package of cpack is what lintian accepts; packed twice it has the same bytes.
. "$(dirname "$0")/common.sh"
for tool in lintian mandoc; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
build=$(dirname "$dtrain")

cmake --install "$build" --prefix "$work/first place" >"$work/log"
mv "$work/first place" "$work/other place"
share="$work/other place/share"
mandoc -Tlint -W style "$share"/man/man*/* >"$work/lint" || fail "$(head "$work/lint")"
# They have every sub-command and every key.
[ "$(grep -c '^\.SS dtrain ' "$share/man/man1/dtrain.1")" = "$("$dtrain" help all | grep -c '^  dtrain [a-gi-z]')" ] || fail "dtrain.1"
[ "$(grep -c '^\.TP' "$share/man/man5/dtrain-config.5")" = "$("$dtrain" config help | grep -c '^- ')" ] || fail "dtrain-config.5"
grep -qF '\fB\-\-dry\-run\fR\fI[=plan]\fR' "$share/man/man1/dtrain.1" || fail "no option --dry-run"
# As an ordinary user, in a folder without any of dtrain's files.
mkdir "$work/home"
cd "$work/home"
installed="$work/other place/bin/dtrain"
ends 0 "" "$installed" config show --config resnet50
shows '"name": "resnet50"'
ends 66 "no such file in .*/share/dtrain/configs" "$installed" config show --config resnet51
sed -i 's/images-per-class 1000/images-per-class 40/; s/images-per-class 200/images-per-class 10/
    s/per-shard 2500/per-shard 100/; s/per-shard 1000/per-shard 50/; s/> 90/>= 0/' "$share/dtrain/scripts/quickstart.sh"
ends 0 "" "$share/dtrain/scripts/quickstart.sh"
shows "training on 2 ranks, [0-9]* s after the start" "curves in runs/quickstart/report.html"
[ -s runs/quickstart/report.html ] || fail "no report"
echo '{"images_per_s": 1}' >a-np1-1.json
"$share/dtrain/scripts/scaling_report.py" . >out || fail "scaling_report.py"
grep -q "class Chart" scaling.html || fail "no script in the page of scaling"
"$share/dtrain/scripts/make_job.py" --for slurm --nodes 2 --gpus 4 --config resnet50 >job || fail "make_job.py"
grep -q -- "--config resnet50" job || fail "$(cat job)"

# The quick start builds for the GPUs that are there, the first time, and says for which.
mkdir -p "$work/tree/build" "$work/fake"
cp -r "$DTRAIN_SOURCE_DIR/scripts" "$work/tree/"
printf '#!/bin/sh\necho "$@" >>"%s"\necho "-- CUDA backend: toolkit 13, NCCL 2, architectures 80-real;90"\n' "$work/calls" \
    >"$work/fake/cmake"
printf '#!/bin/sh\necho "GPU 0: one"\n' >"$work/fake/nvidia-smi"
chmod +x "$work"/fake/*
for native in "-DCMAKE_CUDA_ARCHITECTURES=native " ""; do
    rm -f "$work/calls"
    ends 1 "" env PATH="$work/fake:$PATH" DTRAIN=false DTRAIN_NO_INSTALL=1 "$work/tree/scripts/quickstart.sh" -DA=B
    shows "^setup: with kernels for GPU generations 80-real;90, most of a build; -DDTRAIN_CUDA=OFF leaves them out, "
    grep -q "^--preset release -G Ninja $native-DA=B$" "$work/calls" || fail "$(cat "$work/calls")"
    touch "$work/tree/build/CMakeCache.txt"
done

# Without root, where there is nothing but a shell.
mkdir "$work/few"
for tool in bash cat dirname head; do ln -s "$(command -v $tool)" "$work/few/"; done
ends 69 "" env -i PATH="$work/few" HOME="$work" "$DTRAIN_SOURCE_DIR/scripts/setup.sh" --user build
shows "missing: CMake" "conda-forge gcc cmake ninja" "spack install .* libarchive" "pip install cmake ninja"

for i in 1 2; do
    cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/pack$i" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    rm -rf "$work/pack$i/_CPack_Packages"
    sleep 1.1 # another second
done
deb1=$(echo "$work"/pack1/*.deb) deb2=$(echo "$work"/pack2/*.deb)
cmp "$deb1" "$deb2"
lintian --allow-root --fail-on error "$deb1" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
dpkg-deb -x "$deb1" "$work/root"
for file in bin/dtrain share/dtrain/configs/resnet50.json share/dtrain/scripts/slurm/dtrain.sbatch share/man/man1/dtrain.1.gz \
    share/man/man5/dtrain-config.5.gz share/zsh/vendor-completions/_dtrain share/bash-completion/completions/dtrain; do
    [ -s "$work/root/usr/$file" ] || fail "the package has no $file"
done
dpkg-deb -f "$deb1" Depends | grep -q libdnnl || fail "dependencies: $(dpkg-deb -f "$deb1" Depends)"
