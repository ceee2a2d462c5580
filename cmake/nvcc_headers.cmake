# The test that nvcc, which calls g++, compiles the headers of the parts cuda and nccl that are here in one
# unit, twice over, as a program with kernels of its own includes them, and without a flag; with products of
# the part onednn, whose loops are templates. That each compiles alone is shown without nvcc
# (headers_alone.cmake): only backend/cuda/launch.hpp asks whether nvcc compiles it, and
# backend/onednn/onednn.hpp, for a warning. Not by a target: that would enable the language CUDA for the
# whole project.

find_package(CUDAToolkit QUIET)
set(library ${PROJECT_SOURCE_DIR}/include/shardwise)
set(patterns)
if(TARGET shardwise::cuda)
  list(APPEND patterns ${library}/backend/cuda/*.hpp)
endif()
if(TARGET shardwise::nccl)
  list(APPEND patterns ${library}/comm/nccl*.hpp ${library}/comm/detail/nccl*.hpp)
endif()
if(NOT CUDAToolkit_NVCC_EXECUTABLE OR NOT patterns OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
file(GLOB headers CONFIGURE_DEPENDS ${patterns})
set(includes)
foreach(header IN LISTS headers)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR}/include ${header})
  string(APPEND includes "#include \"${path}\"\n")
endforeach()
if(TARGET shardwise::onednn)
  string(APPEND includes "#include \"shardwise/backend/onednn/onednn.hpp\"\n")
  set(products "template class shardwise::OneDnn::Linear<float>;\ntemplate class shardwise::OneDnn::Linear<shardwise::bf16>;\n")
endif()
set(unit ${CMAKE_CURRENT_BINARY_DIR}/nvcc_headers)
file(CONFIGURE OUTPUT ${unit}.cu CONTENT "${includes}${includes}${products}")
add_test(NAME nvcc.headers
  COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++20 -Werror all-warnings
    -Xcompiler -Wall,-Wextra,-Wconversion -I ${PROJECT_SOURCE_DIR}/include -c ${unit}.cu -o ${unit}.o)
set_tests_properties(nvcc.headers PROPERTIES LABELS "slow;house" TIMEOUT ${SHARDWISE_TEST_TIMEOUT})
