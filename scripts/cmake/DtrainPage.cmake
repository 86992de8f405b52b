# The style sheet and the script of `dtrain report` as bytes of a constant: page/NAME.inc.
foreach(name report.css report.js)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/page/${name})
    file(READ ${CMAKE_SOURCE_DIR}/src/page/${name} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/page/${name}.inc CONTENT "${bytes}" @ONLY)
endforeach()
