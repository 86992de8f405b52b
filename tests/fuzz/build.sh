#!/bin/bash
# Builds the fuzz targets with clang's libFuzzer, ASan and UBSan: build.sh [FOLDER [TARGET...]]
#
# cJSON, libjpeg-turbo and libarchive are built from their Debian sources with instrumentation, as
# the fuzzer cannot see into them otherwise. If the sources cannot be fetched, the system's
# libraries are linked and a message says so.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
out=${1:-/tmp/dtrain-fuzz}
shift || true
targets=("${@:-all}")
[ "${targets[0]}" != all ] || targets=(config tar_index safetensors jpeg coco)
cc=${CC_FUZZ:-clang-14}
cover="-fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer -g -O2"
checks="$cover -fsanitize=undefined -fno-sanitize-recover=undefined"
mkdir -p "$out/obj" "$out/lib"
cd "$out"

fetch_sources() {
    local options=("Etc::sourcelist=$out/apt/list" Etc::sourceparts=/dev/null
        "State::lists=$out/apt/lists" "Cache=$out/apt/cache")
    local apt=(apt-get -qq "${options[@]/#/-oDir::}")
    local key="signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
    mkdir -p apt/lists/partial apt/cache/archives/partial src
    printf "deb-src [$key] %s main\n" "http://deb.debian.org/debian bookworm" \
        "http://deb.debian.org/debian-security bookworm-security" > apt/list
    timeout 120 "${apt[@]}" update &&
        (cd src && timeout 300 "${apt[@]}" source cjson libjpeg-turbo libarchive)
}

# build_cmake NAME SOURCE-FOLDER LIBRARY TARGET OPTIONS...
build_cmake() {
    local name=$1 source=$2 library=$3 target=$4
    shift 4
    [ ! -e "lib/lib$name.a" ] || return 0
    cmake -S "$source" -B "src/build-$name" -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$cover" \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE= "$@" > "src/$name.log" 2>&1 &&
        cmake --build "src/build-$name" -j2 --target "$target" >> "src/$name.log" 2>&1 &&
        cp "src/build-$name/$library" "lib/lib$name.a"
}

build_libraries() {
    # shellcheck disable=SC2086
    "$cc" $cover -c src/cjson-*/cJSON.c -o src/cjson.o && ar rcs lib/libcjson.a src/cjson.o &&
        build_jpeg && build_archive
}

build_jpeg() {
    build_cmake jpeg "$(echo src/libjpeg-turbo-*/)" libjpeg.a jpeg-static -DWITH_SIMD=0 \
        -DENABLE_SHARED=0 -DWITH_TURBOJPEG=0
}

build_archive() {
    local without=()
    for option in MBEDTLS NETTLE OPENSSL LIBB2 LZ4 LZO LZMA ZSTD ZLIB BZip2 LIBXML2 EXPAT \
        PCREPOSIX TAR CPIO CAT TEST WERROR; do
        without+=("-DENABLE_$option=OFF")
    done
    build_cmake archive "$(echo src/libarchive-*/)" libarchive/libarchive.a archive_static \
        "${without[@]}"
}

if ls lib/lib{cjson,jpeg,archive}.a > /dev/null 2>&1 || { fetch_sources && build_libraries; }; then
    libraries=(lib/libcjson.a lib/libjpeg.a lib/libarchive.a)
else
    echo "build.sh: no sources of cJSON, libjpeg-turbo and libarchive; using the system's" \
        "libraries, which the fuzzer cannot see into" >&2
    libraries=(-lcjson -ljpeg -larchive)
fi

compile() { # SOURCE
    local flags=$checks
    # Edit distances take most of the time and tell the fuzzer nothing.
    [[ $1 != */nearest.c ]] || flags=${flags/fuzzer-no-link,/}
    # shellcheck disable=SC2086
    "$cc" -std=c11 -D_GNU_SOURCE -DDTRAIN_VERSION='"fuzz"' -DDTRAIN_DATE='"1970-01-01"' -I"$root/include" -I"$root/src" $flags \
        -c "$1" -o "obj/$(basename "$(dirname "$1")")-$(basename "$1" .c).o"
}
export -f compile
export cc root checks
rm -f obj/*.o lib/libdtrain.a
printf '%s\0' "$root"/src/{base,graph,models,config,image,boxes,data}/*.c "$root"/src/checkpoint/{foreign,safetensors,manifest}.c \
    "$root"/tests/fuzz/fuzz.c | xargs -0 -P2 -I{} bash -c 'compile {}'
ar rcs lib/libdtrain.a obj/*.o

# The hand-made cases, for the fuzzers to start from.
rm -rf seeds
mkdir -p seeds/jpeg
cc -I"$root/tests/support" "$root/tests/fuzz/make_jpeg_seeds.c" -ljpeg -o make_jpeg_seeds
./make_jpeg_seeds seeds/jpeg > /dev/null
find seeds/jpeg -size +32 -delete
for target in config tar_index safetensors coco; do
    python3 "$root/tests/fuzz/${target}_cases.py" --seeds "seeds/$target"
done

for target in "${targets[@]}"; do
    # shellcheck disable=SC2086
    "$cc" -std=c11 -D_GNU_SOURCE -I"$root/include" -I"$root/src" $checks -fsanitize=fuzzer \
        "$root/tests/fuzz/fuzz_$target.c" lib/libdtrain.a "${libraries[@]}" -lxxhash -lpthread -lm \
        -o "fuzz_$target"
    echo "$out/fuzz_$target"
done
