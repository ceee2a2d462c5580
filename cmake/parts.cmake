# The parts of the library that need an installed one: shardwise::onednn, shardwise::cblas,
# shardwise::data, shardwise::mpi and shardwise::checkpoint.
# Where it is not installed, the target does not exist and whoever links it fails by name.

if(SHARDWISE_ONEDNN)
  # Not through Debian's dnnl-config.cmake, which fails where OpenCL's headers are missing: we need
  # none of them.
  find_path(SHARDWISE_DNNL_INCLUDE oneapi/dnnl/dnnl_version.h)
  find_library(SHARDWISE_DNNL_LIBRARY dnnl)
  mark_as_advanced(SHARDWISE_DNNL_INCLUDE SHARDWISE_DNNL_LIBRARY)
  set(version)
  if(SHARDWISE_DNNL_INCLUDE AND SHARDWISE_DNNL_LIBRARY)
    file(STRINGS ${SHARDWISE_DNNL_INCLUDE}/oneapi/dnnl/dnnl_version.h version
         REGEX "define DNNL_VERSION_MAJOR [23]$")
  endif()
  if(version)
    add_library(shardwise_onednn INTERFACE)
    add_library(shardwise::onednn ALIAS shardwise_onednn)
    target_include_directories(shardwise_onednn SYSTEM INTERFACE ${SHARDWISE_DNNL_INCLUDE})
    target_link_libraries(shardwise_onednn
      INTERFACE shardwise::shardwise ${SHARDWISE_DNNL_LIBRARY})
    if(version MATCHES "2$")  # the calls by hand that benchmarks compare with are written for it
      add_library(shardwise::onednn2 ALIAS shardwise_onednn)
    endif()
  endif()
endif()

if(SHARDWISE_CBLAS)
  # Any BLAS that has the C interface; -DBLA_VENDOR=OpenBLAS and the like choose among several.
  find_package(BLAS QUIET)
  find_path(SHARDWISE_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas blis)
  mark_as_advanced(SHARDWISE_CBLAS_INCLUDE)
  if(BLAS_FOUND AND SHARDWISE_CBLAS_INCLUDE)
    include(CheckCXXSymbolExists)
    set(CMAKE_REQUIRED_INCLUDES ${SHARDWISE_CBLAS_INCLUDE})
    set(CMAKE_REQUIRED_LIBRARIES BLAS::BLAS)
    check_cxx_symbol_exists(cblas_dgemm cblas.h SHARDWISE_BLAS_HAS_CBLAS)
    unset(CMAKE_REQUIRED_INCLUDES)
    unset(CMAKE_REQUIRED_LIBRARIES)
  endif()
  if(SHARDWISE_BLAS_HAS_CBLAS)
    add_library(shardwise_cblas INTERFACE)
    add_library(shardwise::cblas ALIAS shardwise_cblas)
    target_include_directories(shardwise_cblas SYSTEM INTERFACE ${SHARDWISE_CBLAS_INCLUDE})
    target_link_libraries(shardwise_cblas INTERFACE shardwise::shardwise BLAS::BLAS)
  endif()
endif()

if(SHARDWISE_DATA)
  find_package(ZLIB QUIET)
  if(ZLIB_FOUND)
    add_library(shardwise_data INTERFACE)
    add_library(shardwise::data ALIAS shardwise_data)
    target_link_libraries(shardwise_data INTERFACE shardwise::shardwise ZLIB::ZLIB)
  endif()
endif()

if(SHARDWISE_MPI)
  # Open MPI or MPICH, whichever `mpicxx` is; -DMPI_CXX_COMPILER=mpicxx.mpich names another one.
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    add_library(shardwise_mpi INTERFACE)
    add_library(shardwise::mpi ALIAS shardwise_mpi)
    target_link_libraries(shardwise_mpi INTERFACE shardwise::shardwise MPI::MPI_CXX)
  endif()
endif()

if(SHARDWISE_CHECKPOINT)
  find_package(nlohmann_json CONFIG QUIET)
  if(nlohmann_json_FOUND)
    add_library(shardwise_checkpoint INTERFACE)
    add_library(shardwise::checkpoint ALIAS shardwise_checkpoint)
    target_link_libraries(shardwise_checkpoint
      INTERFACE shardwise::shardwise nlohmann_json::nlohmann_json)
  endif()
endif()
