# Read by find_package(shardwise CONFIG [COMPONENTS ...] [OPTIONAL_COMPONENTS ...]).
# Defines shardwise::shardwise, and shardwise::<part> for each component that was asked for.

cmake_minimum_required(VERSION 3.25)
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/shardwiseTargets.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/shardwiseParts.cmake)

foreach(shardwise_part IN LISTS shardwise_FIND_COMPONENTS)
  shardwise_find_part(${shardwise_part} shardwise_${shardwise_part}_NOT_FOUND_MESSAGE)
  set(shardwise_${shardwise_part}_FOUND TRUE)
  if(shardwise_${shardwise_part}_NOT_FOUND_MESSAGE)
    set(shardwise_${shardwise_part}_FOUND FALSE)
    if(shardwise_FIND_REQUIRED_${shardwise_part})
      set(shardwise_FOUND FALSE)
      string(APPEND shardwise_NOT_FOUND_MESSAGE "${shardwise_${shardwise_part}_NOT_FOUND_MESSAGE}\n")
    elseif(NOT shardwise_FIND_QUIETLY)
      message(STATUS "${shardwise_${shardwise_part}_NOT_FOUND_MESSAGE}")
    endif()
  endif()
endforeach()
unset(shardwise_part)
