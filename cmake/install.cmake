# Installs the headers, what find_package reads, and what pkg-config reads. Nothing depends on the
# machine, and all paths are relative to each other: the prefix may be moved.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_DATADIR}/cmake/shardwise)
# Before 1.0 a minor version may change interfaces; from 1.0 on this is SameMajorVersion.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shardwiseConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
file(RELATIVE_PATH headers ${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${PROJECT_SOURCE_DIR}/cmake/shardwise.pc.in ${PROJECT_BINARY_DIR}/shardwise.pc @ONLY)

install(DIRECTORY include/shardwise DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN *.hpp PATTERN compiled*.cpp)
install(TARGETS shardwise EXPORT shardwise INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT shardwise NAMESPACE shardwise:: FILE shardwiseTargets.cmake DESTINATION ${package})
install(FILES cmake/shardwiseConfig.cmake cmake/shardwiseParts.cmake cmake/FindNCCL.cmake
        ${PROJECT_BINARY_DIR}/shardwiseConfigVersion.cmake DESTINATION ${package})
install(FILES ${PROJECT_BINARY_DIR}/shardwise.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
