# The parts of the library that need an installed one: shardwise::onednn and shardwise::data.
# Where it is not installed, the target does not exist and whoever links it fails by name.

if(SHARDWISE_ONEDNN)
  find_package(dnnl 2.6 CONFIG QUIET)  # its interface changed in 3.0
  if(dnnl_FOUND)
    add_library(shardwise_onednn INTERFACE)
    add_library(shardwise::onednn ALIAS shardwise_onednn)
    target_link_libraries(shardwise_onednn INTERFACE shardwise::shardwise DNNL::dnnl)
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
