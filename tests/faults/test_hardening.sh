#!/bin/bash
# The program was built with hardening: position independent, read-only relocations, no executable
# stack, protected stacks and checked calls of the C library.
set -euo pipefail
dtrain=$1
symbols=$(nm "$dtrain" 2> /dev/null; nm -D "$dtrain")
if grep -qE ' (__asan_init|__tsan_init)' <<< "$symbols"; then
    echo "a build with sanitizers: skipped"
    exit 77
fi
failed=0

# must WHAT PATTERN TEXT: TEXT has a line that matches PATTERN.
must() {
    if ! grep -qE -- "$2" <<< "$3"; then
        echo "not hardened: $1" >&2
        failed=1
    fi
}

header=$(readelf -hW "$dtrain")
segments=$(readelf -lW "$dtrain")
dynamic=$(readelf -dW "$dtrain")
must "position independent" 'Type: +DYN' "$header"
must "read-only relocations" 'GNU_RELRO' "$segments"
must "stack not executable" 'GNU_STACK .* RW +0x' "$segments"
must "all symbols bound at the start" 'BIND_NOW|FLAGS_1.* NOW' "$dynamic"
must "stack protector" ' U __stack_chk_fail' "$symbols"
must "checked calls of the C library" ' U __[a-z]+_chk(@|$)' "$symbols"
must "build id" 'Build ID: [0-9a-f]{16}' "$(readelf -n "$dtrain")"
exit "$failed"
