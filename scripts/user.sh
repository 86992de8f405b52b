# shellcheck shell=bash
# For setup.sh --user: finds what the build needs in the prefixes of modules, Spack, conda and Python,
# and says how to get without root what is missing.

# What, how it is found, and its package in conda-forge, Spack and PyPI.
NEEDS="C compiler|program cc gcc|gcc|gcc|
CMake|program cmake|cmake|cmake|cmake
Ninja|program ninja|ninja|ninja|ninja
pkg-config|program pkg-config pkgconf|pkg-config|pkgconf|pkgconf
MPI|program mpicc|openmpi|openmpi|openmpi
oneDNN|header oneapi/dnnl/dnnl.h|onednn|onednn|onednn-devel-cpu-gomp
libjpeg-turbo|library libjpeg|libjpeg-turbo|libjpeg-turbo|
zlib|library zlib|zlib|zlib-api|
cJSON|library libcjson|cjson|cjson|
libarchive|library libarchive|libarchive|libarchive|
xxHash|library libxxhash|xxhash|xxhash|
Random123|header Random123/philox.h|random123|random123|
libpng (optional)|library libpng|libpng|libpng|
libwebp (optional)|library libwebp|libwebp|libwebp|
libtiff (optional)|library libtiff-4|libtiff|libtiff|
giflib (optional)|library libgif|giflib|giflib|
hwloc (optional)|library hwloc|libhwloc|hwloc|"

# Prefixes whose owners set no search paths.
use_prefixes() {
    local prefix folder
    for prefix in "${CONDA_PREFIX:-}" "${VIRTUAL_ENV:-}" "${SPACK_ENV:+$SPACK_ENV/.spack-env/view}"; do
        [ -d "$prefix" ] || continue
        export PATH="$prefix/bin:$PATH" CMAKE_PREFIX_PATH="$prefix:${CMAKE_PREFIX_PATH:-}"
    done
    IFS=: read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
    for prefix in "${prefixes[@]}"; do
        for folder in lib lib64 share; do
            export PKG_CONFIG_PATH="${PKG_CONFIG_PATH:-}:$prefix/$folder/pkgconfig"
        done
    done
}

is_found() { # program NAME..., header NAME, library NAME
    local name kind=$1 folders
    shift
    case $kind in
    program) for name; do ! command -v "$name" && continue || return 0; done && return 1 ;;
    header)
        IFS=: read -ra folders <<<"${CPATH:-}"
        folders+=("${prefixes[@]/%//include}" /usr/include /usr/local/include)
        for name in "${folders[@]}"; do [ ! -e "$name/$1" ] || return 0; done && return 1
        ;;
    library) "$(command -v pkg-config pkgconf | head -n 1)" --exists "$1" ;;
    esac
}

# Ends with 69 if something is missing that is not optional.
check_needs() {
    local what how conda spack pypi left=~/dtrain-deps
    local -a missing=() condas=() spacks=() pypis=()
    use_prefixes
    while IFS='|' read -r what how conda spack pypi; do
        # shellcheck disable=SC2086 # a list
        ! is_found $how >/dev/null 2>&1 || continue
        echo "setup: missing: $what"
        [[ $what == *optional* ]] || missing+=("$what")
        condas+=("$conda") spacks+=("$spack")
        [ -z "$pypi" ] || pypis+=("$pypi")
    done <<<"$NEEDS"
    [ ${#missing[@]} -gt 0 ] || return 0
    cat <<END
setup: without root, one of these gets it; then start this again:
  modules:  module avail; module load ... (they set CMAKE_PREFIX_PATH or PKG_CONFIG_PATH)
  conda:    micromamba create -p $left -c conda-forge ${condas[*]}; export CONDA_PREFIX=$left
  Spack:    spack install ${spacks[*]}; spack load ${spacks[*]}
END
    [ ${#pypis[@]} = 0 ] || cat <<END
  PyPI:     python3 -m venv $left; $left/bin/pip install ${pypis[*]}; export VIRTUAL_ENV=$left
            (these only: ${pypis[*]})
END
    echo "setup: or take the tarball, which needs only Open MPI: scripts/packaging/README.md"
    exit 69
}
