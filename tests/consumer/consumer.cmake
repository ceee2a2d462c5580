# The common part of all ways to get the library. -DPROGRAM=small is for ways that give the compiler the
# same as another way: its program includes a header of each part, and trains nothing.

if(NOT PROGRAM)
  set(PROGRAM main)
endif()
add_executable(consumer ../program/${PROGRAM}.cpp ../program/use_parts.cpp)
target_link_libraries(consumer PRIVATE shardwise::shardwise)
if(PROGRAM STREQUAL "small")
  target_compile_definitions(consumer PRIVATE SMALL)
endif()
foreach(part IN LISTS parts)
  string(TOUPPER WITH_${part} define)
  target_link_libraries(consumer PRIVATE shardwise::${part})
  target_compile_definitions(consumer PRIVATE ${define})
endforeach()

# The library searches only for requested parts, and adds no flag to the user's build.
get_property(found GLOBAL PROPERTY PACKAGES_FOUND)
get_property(missed GLOBAL PROPERTY PACKAGES_NOT_FOUND)
list(REMOVE_ITEM found shardwise)
if(NOT parts AND NOT "${found} ${missed}" STREQUAL "Threads ")
  message(FATAL_ERROR "The library looked for more than Threads: found ${found}; not ${missed}")
endif()
get_target_property(options shardwise::shardwise INTERFACE_COMPILE_OPTIONS)
if(options)
  message(FATAL_ERROR "The library adds flags to a user's build: ${options}")
endif()
get_property(tests DIRECTORY . PROPERTY TESTS)
if(tests OR SHARDWISE_TESTS OR SHARDWISE_EXAMPLES OR SHARDWISE_BENCH OR SHARDWISE_INFO OR
   SHARDWISE_INSTALL)
  message(FATAL_ERROR "The library brings its tests, examples, benchmarks or installation along")
endif()
