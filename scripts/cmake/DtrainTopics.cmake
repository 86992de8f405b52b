# The short forms of pages, for `dtrain help TOPIC`: what lies between <!-- help: TOPIC --> and
# <!-- end of help --> in a page becomes rows {"TOPIC", "line"} of help_topics.inc.
set(rows "")
foreach(page configs/README.md scripts/ranks.md src/eval/README.md tests/faults/README.md)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${page})
    file(READ ${page} text)
    string(REPLACE ";" "\\;" text "${text}")
    string(REGEX REPLACE "\\[([^]]*)\\]\\([^)]*\\)" "\\1" text "${text}") # links
    string(REPLACE "[" "<" text "${text}") # CMake's lists do not split within brackets
    string(REPLACE "]" ">" text "${text}")
    string(REPLACE "\n" ";" lines "${text}")
    set(topic "")
    foreach(line IN LISTS lines)
        if(line MATCHES "^<!-- help: ([a-z-]+) -->$")
            set(topic ${CMAKE_MATCH_1})
        elseif(line STREQUAL "<!-- end of help -->")
            set(topic "")
        elseif(topic AND NOT line MATCHES "^(\\|---|```|<!--)")
            string(REGEX REPLACE "^\\| ([^|]*) \\| ([^|]*) \\|$" "  \\1: \\2" line "${line}") # a table
            string(REPLACE "\\" "\\\\" line "${line}")
            string(REPLACE "\"" "\\\"" line "${line}")
            string(APPEND rows "{\"${topic}\", \"${line}\"},\n")
        endif()
    endforeach()
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/cli/help_topics.inc CONTENT "${rows}" @ONLY)
