# Sources that must not compile, and the sentence that the compiler must give.
#
#   #if CASE == 1  // expect: a regular expression (no semicolon, no square brackets)
#
# Each case is a test that passes only if the first error is a failed static assertion with that
# sentence, in one of the first 15 lines of the compiler's output (see compile_fail_case.cmake). With
# CASE=0 the same source must compile, so that a typing error cannot pass for the expected one.
# A case may be compiled with one more flag: `// flag: -std=c++17, expect: ...`.

# What such a short source makes a compiler read is compiled once: the standard's headers and the
# umbrella. Both compilers take precompiled.hpp.gch for precompiled.hpp. And a case stops at its first
# error: g++ spends most of the time behind it, on functions of the umbrella. clang instantiates those
# with the precompiled header, and not again in each case.

include_guard(GLOBAL)
list(JOIN SHARDWISE_STANDARD_HEADERS "\n#include " includes)
file(GLOB_RECURSE ours CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/shardwise/*.hpp)
set(precompiled_header ${PROJECT_BINARY_DIR}/compile_fail/precompiled.hpp)
file(CONFIGURE OUTPUT ${precompiled_header}
     CONTENT "#include ${includes}\n#include \"shardwise/shardwise.hpp\"\n")
set(instantiate)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  set(instantiate -fpch-instantiate-templates)
endif()
add_custom_command(OUTPUT ${precompiled_header}.gch DEPENDS ${precompiled_header} ${ours}
  VERBATIM
  COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -I${PROJECT_SOURCE_DIR}/include
          ${instantiate}
          -x c++-header ${precompiled_header} -o ${precompiled_header}.gch)
add_custom_target(compile_fail_headers ALL DEPENDS ${precompiled_header}.gch)

# shardwise_compile_fail(name source [directory...]): the directories have headers of others.
function(shardwise_compile_fail name source)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  set(precompiled -include ${PROJECT_BINARY_DIR}/compile_fail/precompiled.hpp)
  list(TRANSFORM ARGN PREPEND -I OUTPUT_VARIABLE include)
  set(compile ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -I${PROJECT_SOURCE_DIR}/include
              ${include} ${precompiled})
  add_test(NAME ${name}.control COMMAND ${compile} -DCASE=0 ${source})
  set(tests ${name}.control)
  file(READ ${source} text)
  string(REGEX REPLACE "\\\\\n *" "" text "${text}")  # clang-format breaks long lines
  string(REGEX MATCHALL "\n#(el)?if CASE ==[^\n]*" cases "${text}")
  foreach(line IN LISTS cases)
    if(line MATCHES "CASE == 0")
      continue()
    endif()
    if(NOT line MATCHES "CASE == ([0-9]+) *// (flag: ([^ ,]+), )?expect: (.+)$")
      message(FATAL_ERROR "${source}: a case without its `// expect: <regex>`: ${line}")
    endif()
    set(case ${CMAKE_MATCH_1})
    set(flag "${CMAKE_MATCH_3}")
    set(sentence "${CMAKE_MATCH_4}")
    set(wrong ${compile} -Wfatal-errors -DCASE=${case} ${source})
    if(flag)
      list(REMOVE_ITEM wrong ${precompiled})
      list(APPEND wrong ${flag})
    endif()
    add_test(NAME ${name}.${case} COMMAND ${CMAKE_COMMAND} "-Dcompile=${wrong}"
             "-Dsentence=${sentence}" -Dlines=15
             -P ${PROJECT_SOURCE_DIR}/cmake/compile_fail_case.cmake)
    list(APPEND tests ${name}.${case})
  endforeach()
  cmake_path(GET source PARENT_PATH folder)
  cmake_path(GET folder FILENAME folder)
  set_tests_properties(${tests} PROPERTIES TIMEOUT 120 LABELS ${folder})
endfunction()
