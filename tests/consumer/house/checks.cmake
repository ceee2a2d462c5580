# What tests demand of a user's project when all of it was read: see CMAKE_PROJECT_<name>_INCLUDE. -DPARTS
# names parts, which its program then uses, too.
string(REPLACE "," ";" parts "${PARTS}")
set(house ${CMAKE_CURRENT_LIST_DIR})

function(shardwise_house_checks)
  if(parts AND shardwise_FOUND)  # what a package has of the parts is told when they are asked for
    find_package(shardwise CONFIG REQUIRED COMPONENTS ${parts})
  endif()
  if(parts)
    target_sources(consumer PRIVATE ${house}/parts.cpp)
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
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  if("CUDA" IN_LIST languages)
    message(FATAL_ERROR "The library enables the language CUDA")
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
endfunction()

cmake_language(DEFER CALL shardwise_house_checks)
