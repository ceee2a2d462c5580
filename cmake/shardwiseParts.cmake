# The parts of the library that need an installed one, and how each is found: shardwise::onednn,
# shardwise::cblas, shardwise::mpi, shardwise::checkpoint, shardwise::cuda and shardwise::nccl; and
# shardwise::compiled and shardwise::precompiled. The build tree and an installed shardwiseConfig.cmake
# both read this file.

set(SHARDWISE_PARTS onednn cblas mpi checkpoint cuda nccl)
set(SHARDWISE_FIND_MODULES ${CMAKE_CURRENT_LIST_DIR})

# Programs that are compiled faster: shardwise::compiled has the functions that are no templates, and
# loops, built where a target links it; a target that links shardwise::precompiled precompiles the umbrella.
function(shardwise_compiled target kind)
  string(REPLACE shardwise_ "" source ${target})
  add_library(${target} ${kind} EXCLUDE_FROM_ALL
    $<TARGET_PROPERTY:shardwise::shardwise,INTERFACE_INCLUDE_DIRECTORIES>/shardwise/${source}.cpp)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON DISABLE_PRECOMPILE_HEADERS ON)
endfunction()
if(NOT TARGET shardwise_compiled)
  shardwise_compiled(shardwise_compiled STATIC)
  target_compile_definitions(shardwise_compiled PUBLIC SHARDWISE_COMPILED)
  target_link_libraries(shardwise_compiled PUBLIC shardwise::shardwise)
  add_library(shardwise::compiled ALIAS shardwise_compiled)
  add_library(shardwise::precompiled INTERFACE IMPORTED GLOBAL)
  target_precompile_headers(shardwise::precompiled INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:<shardwise/shardwise.hpp$<ANGLE-R>>")
  target_link_libraries(shardwise::precompiled INTERFACE shardwise::shardwise)
endif()

# shardwise_find_part(<part> <problem> [GLOBAL]): defines shardwise::<part>, seen from everywhere if
# GLOBAL; or, where something is missing, sets <problem> to the sentence that says what.
function(shardwise_find_part part problem)
  set(sentence "")
  if(NOT part IN_LIST SHARDWISE_PARTS)
    list(JOIN SHARDWISE_PARTS ", " parts)
    set(sentence "shardwise has no part '${part}'. Its parts are ${parts}; the core needs no name.")
  elseif(NOT TARGET shardwise::${part})
    cmake_language(CALL shardwise_find_${part} link include missing)
    if(missing)
      list(JOIN CMAKE_PREFIX_PATH " " prefixes)
      list(REMOVE_DUPLICATES CMAKE_SYSTEM_PREFIX_PATH)
      list(JOIN CMAKE_SYSTEM_PREFIX_PATH " " system)
      set(sentence "shardwise::${part} ${missing} Looked in CMAKE_PREFIX_PATH (${prefixes}) and in \
the system's prefixes (${system}); -DCMAKE_PREFIX_PATH=<prefix> names another one.")
    else()
      add_library(shardwise::${part} INTERFACE IMPORTED ${ARGN})
      target_include_directories(shardwise::${part} SYSTEM INTERFACE ${include})
      target_link_libraries(shardwise::${part} INTERFACE shardwise::shardwise ${link})
      if(part STREQUAL "checkpoint" AND NOT TARGET shardwise_compiled_checkpoint)
        shardwise_compiled(shardwise_compiled_checkpoint OBJECT)
        target_link_libraries(shardwise_compiled_checkpoint PRIVATE shardwise::checkpoint)
        target_link_libraries(shardwise_compiled PRIVATE shardwise_compiled_checkpoint)
      endif()
    endif()
  endif()
  set(${problem} "${sentence}" PARENT_SCOPE)
endfunction()

# Each of these sets `link` and `include` to what the part needs, or `missing` to what was looked
# for, what was found of it, and what to install or to set.

# Not through Debian's dnnl-config.cmake, which fails where OpenCL's headers are missing: we need
# none of them.
function(shardwise_find_onednn link include missing)
  find_path(SHARDWISE_DNNL_INCLUDE oneapi/dnnl/dnnl_version.h)
  find_library(SHARDWISE_DNNL_LIBRARY dnnl)
  mark_as_advanced(SHARDWISE_DNNL_INCLUDE SHARDWISE_DNNL_LIBRARY)
  set(version "")
  if(SHARDWISE_DNNL_INCLUDE AND SHARDWISE_DNNL_LIBRARY)
    file(STRINGS ${SHARDWISE_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h version
         REGEX "define DNNL_VERSION_MAJOR")
    string(REGEX REPLACE ".* " "" version "${version}")
  endif()
  set(${link} ${SHARDWISE_DNNL_LIBRARY} ${CMAKE_DL_LIBS} PARENT_SCOPE)
  set(${include} ${SHARDWISE_DNNL_INCLUDE} PARENT_SCOPE)
  set(${missing} "" PARENT_SCOPE)
  if(NOT version MATCHES "^[23]$")
    set(${missing} "needs oneDNN 2 or 3: the header oneapi/dnnl/dnnl_version.h \
(${SHARDWISE_DNNL_INCLUDE}, version '${version}') and the library dnnl (${SHARDWISE_DNNL_LIBRARY}). \
Install libdnnl-dev, or set SHARDWISE_DNNL_INCLUDE and SHARDWISE_DNNL_LIBRARY." PARENT_SCOPE)
  endif()
endfunction()

# Any BLAS that has the C interface; -DBLA_VENDOR=OpenBLAS and the like choose among several.
function(shardwise_find_cblas link include missing)
  find_package(BLAS QUIET)
  find_path(SHARDWISE_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas blis)
  mark_as_advanced(SHARDWISE_CBLAS_INCLUDE)
  if(BLAS_FOUND AND SHARDWISE_CBLAS_INCLUDE)
    include(CheckCXXSymbolExists)
    set(CMAKE_REQUIRED_QUIET ON)
    string(APPEND CMAKE_REQUIRED_FLAGS " -w")  # a user's -Werror does not decide whether it is there
    set(CMAKE_REQUIRED_INCLUDES ${SHARDWISE_CBLAS_INCLUDE})
    set(CMAKE_REQUIRED_LIBRARIES BLAS::BLAS)
    check_cxx_symbol_exists(cblas_dgemm cblas.h SHARDWISE_BLAS_HAS_CBLAS)
  endif()
  set(${link} BLAS::BLAS ${CMAKE_DL_LIBS} PARENT_SCOPE)
  set(${include} ${SHARDWISE_CBLAS_INCLUDE} PARENT_SCOPE)
  set(${missing} "" PARENT_SCOPE)
  if(NOT SHARDWISE_BLAS_HAS_CBLAS)
    unset(SHARDWISE_BLAS_HAS_CBLAS CACHE)  # another BLA_VENDOR may have it
    set(${missing} "needs a BLAS with the C interface: the header cblas.h \
(${SHARDWISE_CBLAS_INCLUDE}) and a library of FindBLAS that has cblas_dgemm ('${BLAS_LIBRARIES}'). \
Install libopenblas-dev, or set BLA_VENDOR and SHARDWISE_CBLAS_INCLUDE." PARENT_SCOPE)
  endif()
endfunction()

# Open MPI or MPICH, whichever `mpicxx` is; -DMPI_CXX_COMPILER=mpicxx.mpich names another one.
function(shardwise_find_mpi link include missing)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  set(${link} MPI::MPI_CXX PARENT_SCOPE)
  set(${include} "" PARENT_SCOPE)
  set(${missing} "" PARENT_SCOPE)
  if(NOT TARGET MPI::MPI_CXX)
    set(${missing} "needs MPI: a compiler wrapper such as mpicxx (${MPI_CXX_COMPILER}) whose mpi.h \
and library work. Install libopenmpi-dev or libmpich-dev, or set MPI_CXX_COMPILER to the wrapper or \
MPI_HOME to the prefix." PARENT_SCOPE)
  endif()
endfunction()

function(shardwise_find_checkpoint link include missing)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    find_package(nlohmann_json CONFIG QUIET)
  endif()
  set(${link} nlohmann_json::nlohmann_json PARENT_SCOPE)
  set(${include} "" PARENT_SCOPE)
  set(${missing} "" PARENT_SCOPE)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    set(${missing} "needs nlohmann-json: its nlohmann_jsonConfig.cmake (${nlohmann_json_DIR}). \
Install nlohmann-json3-dev, or set nlohmann_json_DIR." PARENT_SCOPE)
  endif()
endfunction()

# The libraries of a CUDA toolkit and cuDNN. Enables no language: a project with kernels does that
# itself, and sets CMAKE_CUDA_ARCHITECTURES.
function(shardwise_find_cuda link include missing)
  find_package(CUDAToolkit 12 QUIET)
  find_path(SHARDWISE_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(SHARDWISE_CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  mark_as_advanced(SHARDWISE_CUDNN_INCLUDE SHARDWISE_CUDNN_LIBRARY)
  set(link_all CUDA::cudart CUDA::cublasLt ${SHARDWISE_CUDNN_LIBRARY})
  if(CMAKE_VERSION VERSION_LESS 3.25.2)  # which do not pass C++20 on to nvcc
    list(APPEND link_all shardwise::cuda_language)
    if(NOT TARGET shardwise::cuda_language)
      add_library(shardwise::cuda_language INTERFACE IMPORTED GLOBAL)
      target_compile_options(shardwise::cuda_language INTERFACE
        $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>)
    endif()
  endif()
  set(${link} ${link_all} PARENT_SCOPE)
  set(${include} ${SHARDWISE_CUDNN_INCLUDE} PARENT_SCOPE)
  set(${missing} "" PARENT_SCOPE)
  if(NOT TARGET CUDA::cublasLt OR NOT SHARDWISE_CUDNN_INCLUDE OR NOT SHARDWISE_CUDNN_LIBRARY)
    set(${missing} "needs a CUDA toolkit from 12 on with cudart and cublasLt (version \
'${CUDAToolkit_VERSION}' in '${CUDAToolkit_LIBRARY_DIR}') and cuDNN: the header cudnn.h \
(${SHARDWISE_CUDNN_INCLUDE}) and the library cudnn (${SHARDWISE_CUDNN_LIBRARY}). Install NVIDIA's \
cuda-toolkit and cudnn, or set CUDAToolkit_ROOT, SHARDWISE_CUDNN_INCLUDE and \
SHARDWISE_CUDNN_LIBRARY." PARENT_SCOPE)
  endif()
endfunction()

# By NVIDIA's own NCCLConfig.cmake where there is one, else by the FindNCCL.cmake beside this file.
function(shardwise_find_nccl link include missing)
  if(NOT TARGET NCCL::nccl)
    find_package(NCCL CONFIG QUIET)
  endif()
  if(NOT TARGET NCCL::nccl)
    list(PREPEND CMAKE_MODULE_PATH ${SHARDWISE_FIND_MODULES})
    find_package(NCCL MODULE QUIET)
  endif()
  find_package(CUDAToolkit QUIET)
  set(${link} NCCL::nccl CUDA::cudart PARENT_SCOPE)
  set(${include} "" PARENT_SCOPE)
  set(${missing} "" PARENT_SCOPE)
  if(NOT TARGET NCCL::nccl OR NOT TARGET CUDA::cudart OR
     (NCCL_VERSION AND NCCL_VERSION VERSION_LESS 2.18.1))
    set(${missing} "needs NCCL from 2.18.1 on: its NCCLConfig.cmake (${NCCL_DIR}), or the header \
nccl.h (${NCCL_INCLUDE_DIR}, version '${NCCL_VERSION}') and the library nccl (${NCCL_LIBRARY}); and \
a CUDA toolkit with cudart (version '${CUDAToolkit_VERSION}' in '${CUDAToolkit_LIBRARY_DIR}'). \
Install libnccl-dev and cuda-cudart-dev of NVIDIA, or set NCCL_ROOT and CUDAToolkit_ROOT." PARENT_SCOPE)
  endif()
endfunction()
