# Programs of this project: each links the parts that its sources ask for, or is skipped with the
# reason in ${PROJECT_BINARY_DIR}/skipped.txt, which `./dev test` shows.

find_package(CLI11 CONFIG QUIET)
find_package(benchmark CONFIG QUIET)
find_package(ZLIB QUIET)
file(WRITE ${PROJECT_BINARY_DIR}/skipped.txt "")

# What is precompiled for tests. That each of our headers includes what it needs is shown without
# these (headers_alone.cmake).
set(SHARDWISE_STANDARD_HEADERS <algorithm> <array> <atomic> <bit> <chrono> <cmath> <concepts> <cstddef>
    <cstdint> <cstdio> <cstdlib> <cstring> <exception> <filesystem> <functional> <initializer_list>
    <limits> <map> <memory> <mutex> <numeric> <optional> <random> <span> <stdexcept> <string>
    <string_view> <thread> <tuple> <type_traits> <utility> <vector>)

# Warnings that users may ask for beside those of CMakePresets.json: all headers and all examples have none.
set(SHARDWISE_STRICT -Wshadow -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor -Wundef)

if(TARGET shardwise::onednn)  # the calls by hand that benchmarks compare with are written for 2
  file(STRINGS ${SHARDWISE_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h version_2
       REGEX "define DNNL_VERSION_MAJOR 2$")
  if(version_2)
    add_library(shardwise::onednn2 ALIAS shardwise::onednn)
  endif()
endif()

find_path(SHARDWISE_NVTX_INCLUDE nvtx3/nvToolsExt.h PATHS ENV CUDA_PATH /usr/local/cuda
          PATH_SUFFIXES include)
mark_as_advanced(SHARDWISE_NVTX_INCLUDE)
if(SHARDWISE_NVTX_INCLUDE)
  add_library(shardwise_nvtx INTERFACE IMPORTED)
  target_include_directories(shardwise_nvtx SYSTEM INTERFACE ${SHARDWISE_NVTX_INCLUDE})
  target_link_libraries(shardwise_nvtx INTERFACE ${CMAKE_DL_LIBS})
endif()

find_path(SHARDWISE_CCCL_INCLUDE cuda/std/mdspan PATHS ENV CUDA_PATH /usr/local/cuda
          PATH_SUFFIXES include/cccl include)  # a test alone includes CCCL's spans
mark_as_advanced(SHARDWISE_CCCL_INCLUDE)
if(SHARDWISE_CCCL_INCLUDE)
  add_library(shardwise_cccl INTERFACE IMPORTED)
  target_include_directories(shardwise_cccl SYSTEM INTERFACE ${SHARDWISE_CCCL_INCLUDE})
endif()

# A part or tool, what in a path or an include line asks for it, the target, and where to get it.
set(SHARDWISE_NEEDS onednn onednn2 cblas zlib mpi checkpoint cuda nccl cli cccl)
set(SHARDWISE_NEED_onednn "/onednn[./]|<oneapi/|<dnnl|support/device.hpp" shardwise::onednn "libdnnl-dev (oneDNN 2 or 3)")
set(SHARDWISE_NEED_onednn2 "by_hand.hpp" shardwise::onednn2 "libdnnl-dev (oneDNN 2)")
set(SHARDWISE_NEED_cblas "/cblas[./]|<cblas.h>" shardwise::cblas
    "libopenblas-dev (cblas.h, and a BLAS of CMake's FindBLAS that has cblas_dgemm)")
set(SHARDWISE_NEED_zlib "<zlib.h>" ZLIB::ZLIB "zlib1g-dev")
set(SHARDWISE_NEED_mpi "comm/(detail/)?mpi|<mpi.h>" shardwise::mpi "libopenmpi-dev or libmpich-dev")
set(SHARDWISE_NEED_checkpoint
    "/checkpoint/|support/checkpoints.hpp|/models/[a-z0-9]*_files|<nlohmann/" shardwise::checkpoint "nlohmann-json3-dev")
set(SHARDWISE_NEED_cuda "/cuda[./]" shardwise::cuda "NVIDIA's CUDA toolkit and cuDNN")
set(SHARDWISE_NEED_nccl "comm/(detail/)?nccl|<nccl.h>" shardwise::nccl "NVIDIA's libnccl-dev")
set(SHARDWISE_NEED_cli "<CLI/" CLI11::CLI11 "libcli11-dev")
set(SHARDWISE_NEED_cccl "<cuda/std/" shardwise_cccl "CCCL (comes with the CUDA toolkit; or set SHARDWISE_CCCL_INCLUDE)")
list(APPEND SHARDWISE_NEEDS nvtx benchmark)
set(SHARDWISE_NEED_benchmark "support/program.hpp" benchmark::benchmark "libbenchmark-dev")
set(SHARDWISE_NEED_nvtx "<nvtx3/" shardwise_nvtx "NVIDIA's CUDA toolkit (or set SHARDWISE_NVTX_INCLUDE)")

# Sets `result` to the include lines of a source and of all files of this project, outside include/,
# that it reaches by them.
function(shardwise_includes result source)
  get_property(known GLOBAL PROPERTY shardwise_includes_${source} SET)
  if(NOT known)
    set_property(GLOBAL PROPERTY shardwise_includes_${source} "")  # so that a circle ends
    file(STRINGS ${source} all REGEX "^ *# *include")
    cmake_path(GET source PARENT_PATH beside)
    foreach(line IN LISTS all)
      if(line MATCHES "\"([^\"]+)\"")
        foreach(folder IN ITEMS ${beside} ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/bench
                                ${PROJECT_SOURCE_DIR}/examples)
          if(EXISTS ${folder}/${CMAKE_MATCH_1})
            cmake_path(SET header NORMALIZE ${folder}/${CMAKE_MATCH_1})
            shardwise_includes(further ${header})
            list(APPEND all ${further})
            break()
          endif()
        endforeach()
      endif()
    endforeach()
    list(REMOVE_DUPLICATES all)
    set_property(GLOBAL PROPERTY shardwise_includes_${source} "${all}")
  endif()
  get_property(all GLOBAL PROPERTY shardwise_includes_${source})
  set(${result} ${all} PARENT_SCOPE)
endfunction()

# Sets `targets` to what the sources have to be linked with, `missing` to the packages to install.
function(shardwise_needs targets missing)
  set(link shardwise::shardwise)
  set(absent)
  foreach(source IN LISTS ARGN)
    shardwise_includes(includes ${source})
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    foreach(part IN LISTS SHARDWISE_NEEDS)
      list(GET SHARDWISE_NEED_${part} 0 pattern)
      list(GET SHARDWISE_NEED_${part} 1 target)
      list(GET SHARDWISE_NEED_${part} 2 package)
      if("${path} ${includes}" MATCHES "${pattern}")
        if(TARGET ${target})
          list(APPEND link ${target})
        else()
          list(APPEND absent ${package})
        endif()
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES link)
  list(REMOVE_DUPLICATES absent)
  set(${targets} ${link} PARENT_SCOPE)
  set(${missing} ${absent} PARENT_SCOPE)
endfunction()

function(shardwise_skip name)
  message(STATUS "shardwise: skipped ${name}: not installed: ${ARGN}")
  file(APPEND ${PROJECT_BINARY_DIR}/skipped.txt "${name}: not installed: ${ARGN}\n")
endfunction()

# shardwise_program(name source...): defines the target, unless something that it needs is missing.
function(shardwise_program name)
  shardwise_needs(link missing ${ARGN})
  if(missing)
    shardwise_skip(${name} ${missing})
    return()
  endif()
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE ${link})
endfunction()

set(SHARDWISE_OPTIMISED "" CACHE STRING
    "Regular expression: of examples and drivers, which to optimise; most others are compiled at -O0")

# Not with clang, which precompiles the umbrella as programs of headers alone read it.
option(SHARDWISE_LINK_COMPILED "Link shardwise::compiled with tests and with what is not optimised" OFF)
function(shardwise_link_compiled target)
  if(SHARDWISE_LINK_COMPILED)
    target_link_libraries(${target} PRIVATE shardwise::compiled)
  endif()
endfunction()

# shardwise_level(target [level]): half of the time that a program takes to compile in a Release is
# optimisation. `level` is what it gets where it is left out, instead of -O0.
function(shardwise_level target)
  if(NOT target MATCHES "${SHARDWISE_OPTIMISED}")
    shardwise_link_compiled(${target})
    list(APPEND ARGN -O0)
    list(GET ARGN 0 level)
    target_compile_options(${target} PRIVATE ${level})
  endif()
endfunction()
