# shardwise_nvcc_headers(name flags header...): the test that nvcc, which calls g++, compiles these
# headers in one unit, twice over, as a program with kernels of its own includes them. That each
# compiles alone is shown without nvcc (headers_alone.cmake): only backend/cuda/launch.hpp asks
# whether nvcc compiles it. Not by a target: that would enable the language CUDA for the whole project.

find_package(CUDAToolkit QUIET)

function(shardwise_nvcc_headers name flags)
  if(NOT CUDAToolkit_NVCC_EXECUTABLE OR NOT SHARDWISE_STATIC_TESTS OR
     NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  set(includes)
  foreach(header IN LISTS ARGN)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/include ${header})
    string(APPEND includes "#include \"${path}\"\n")
  endforeach()
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/nvcc_headers)
  file(CONFIGURE OUTPUT ${unit}.cu CONTENT "${includes}${includes}")
  add_test(NAME ${name}
    COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 ${flags} -Werror all-warnings
      -Xcompiler -Wall,-Wextra,-Wconversion -I ${PROJECT_SOURCE_DIR}/include
      -c ${unit}.cu -o ${unit}.o)
  set_tests_properties(${name} PROPERTIES LABELS slow TIMEOUT ${SHARDWISE_TEST_TIMEOUT})
endfunction()
