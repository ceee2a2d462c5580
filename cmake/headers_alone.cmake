# Each header compiles alone where SHARDWISE_HEADERS_ALONE asks for it. With clang 19 and libc++ one call of
# the compiler reads all of them (header_modules.py), and a second one reads them as programs do that link
# shardwise::compiled; otherwise each is a call that makes no code. All of them compile together in one unit,
# whose object is linked twice: a function that is not inline would be there twice. The unit includes each
# header twice, and has macros that other libraries define: some ahead of all headers, and the others ahead of
# ours. It compiles with the standard library's checks and strict warnings, by g++ and by clang where each
# header is compiled alone.

file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/shardwise/*.hpp)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/headers_alone)
set(alone)
set(complete)
set(together)
set(others)
set(parts)
foreach(header IN LISTS headers)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/include ${header})
  shardwise_needs(link missing ${header})
  if(missing)
    shardwise_skip("${path} alone" ${missing})
    continue()
  endif()
  file(CONFIGURE OUTPUT ${folder}/${path}.cpp CONTENT "#include \"${path}\"\n")
  list(APPEND alone ${folder}/${path}.cpp)
  list(APPEND complete ${header})
  list(APPEND parts ${link})
  string(APPEND together "#include \"${path}\"\n")
  file(STRINGS ${header} lines REGEX "^#include <")
  list(APPEND others ${lines})
endforeach()
list(REMOVE_DUPLICATES parts)
list(REMOVE_DUPLICATES others)

find_file(SHARDWISE_LIBCXX_MODULES module.modulemap
          PATHS ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES} NO_DEFAULT_PATH NO_CACHE)
if(NOT SHARDWISE_HEADERS_ALONE)
  file(APPEND ${PROJECT_BINARY_DIR}/skipped.txt "each header alone: the preset libcxx20 compiles them\n")
elseif(SHARDWISE_LIBCXX_MODULES AND Python3_FOUND AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 19)
  cmake_path(GET SHARDWISE_LIBCXX_MODULES PARENT_PATH libcxx)
  set(map ${folder}/modules.map)
  set(script ${PROJECT_SOURCE_DIR}/cmake/header_modules.py)
  add_library(headers_alone OBJECT)
  foreach(unit IN ITEMS ${folder}/all_headers_alone.cpp ${folder}/all_headers_alone_compiled.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"shardwise/shardwise.hpp\"\n")
    target_sources(headers_alone PRIVATE ${unit})
    set_source_files_properties(${unit} PROPERTIES OBJECT_DEPENDS ${map})
  endforeach()
  set_source_files_properties(${folder}/all_headers_alone_compiled.cpp PROPERTIES COMPILE_DEFINITIONS SHARDWISE_COMPILED)
  add_custom_command(OUTPUT ${map} DEPENDS ${script} ${complete} VERBATIM COMMAND_EXPAND_LISTS
                     COMMAND Python3::Interpreter ${script} ${map} ${libcxx} ${complete} --
                             $<TARGET_PROPERTY:headers_alone,INCLUDE_DIRECTORIES>
                             ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  target_compile_options(headers_alone PRIVATE -fmodules -fno-implicit-module-maps -fmodule-map-file=${map}
                                               -fmodules-cache-path=${folder}/modules
                                               -Wno-c++17-extensions)  # of hexadecimal numbers, by mistake
else()
  add_library(headers_alone OBJECT ${alone})
  target_compile_options(headers_alone PRIVATE -fsyntax-only)
endif()
if(TARGET headers_alone)
  target_link_libraries(headers_alone PRIVATE ${parts})
endif()

if(NOT SHARDWISE_HEADERS_ALONE AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
set(macros)
if(NOT SHARDWISE_LIBCXX_MODULES)  # libstdc++ undefines these two; libc++ leaves them to who includes it
  set(macros "#define min(a, b) ((a) < (b) ? (a) : (b))\n#define max(a, b) ((a) > (b) ? (a) : (b))\n")
endif()
list(JOIN others "\n" others)
string(APPEND macros "${others}\n#include <sys/sysmacros.h>\n")  # major and minor
foreach(name I B0 Bool False None Status Success True)  # of complex.h, termios.h and X11
  string(APPEND macros "#undef ${name}\n#define ${name} a_macro_of_another_library(+)\n")
endforeach()
set(used "static_assert(shardwise::CollectiveList{shardwise::all_reduce(1)}.size() == 1);\n")
file(CONFIGURE OUTPUT ${folder}/all_headers.cpp CONTENT
     "// NOLINTBEGIN\n${macros}// NOLINTEND\n${together}// NOLINTBEGIN\n${together}// NOLINTEND\n${used}")
add_library(all_headers OBJECT ${folder}/all_headers.cpp)
target_link_libraries(all_headers PRIVATE ${parts})
target_compile_options(all_headers PRIVATE -O0 ${SHARDWISE_STRICT})
target_compile_definitions(all_headers PRIVATE _GLIBCXX_DEBUG)
set(again ${folder}/all_headers_again${CMAKE_CXX_OUTPUT_EXTENSION})
add_custom_command(OUTPUT ${again} DEPENDS all_headers $<TARGET_OBJECTS:all_headers> VERBATIM
                   COMMAND ${CMAKE_COMMAND} -E copy $<TARGET_OBJECTS:all_headers> ${again})
set_source_files_properties(${again} PROPERTIES EXTERNAL_OBJECT ON)
file(CONFIGURE OUTPUT ${folder}/main.cpp CONTENT "int main() {}\n")
add_executable(headers_linked ${folder}/main.cpp $<TARGET_OBJECTS:all_headers> ${again})
target_link_libraries(headers_linked PRIVATE ${parts})
