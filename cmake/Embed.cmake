# tri_embed(target file symbol): compiles a file into a room as
#   extern const unsigned char <symbol>[]; extern const size_t <symbol>_bytes;
# (a NUL follows the last byte, so text may be used in place). Rebuilt when the file changes.

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${IN} hex HEX)
  string(REGEX REPLACE "(................................................................)" "\\1\n"
         hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  file(SIZE ${IN} bytes)
  file(WRITE ${OUT}
    "/* generated */\n#include <stddef.h>\nextern const unsigned char ${SYMBOL}[];\n"
    "extern const size_t ${SYMBOL}_bytes;\n"
    "const unsigned char ${SYMBOL}[] = {\n${hex}0};\nconst size_t ${SYMBOL}_bytes = ${bytes};\n")
  return()
endif()

set(TRI_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(tri_embed target file symbol)
  if(NOT TARGET ${target})
    return()
  endif()
  set(out ${CMAKE_BINARY_DIR}/embed/${symbol}.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DIN=${file} -DOUT=${out} -DSYMBOL=${symbol} -P ${TRI_EMBED_SCRIPT}
    DEPENDS ${file} ${TRI_EMBED_SCRIPT} COMMENT "embedding ${file}")
  target_sources(${target} PRIVATE ${out})
endfunction()
