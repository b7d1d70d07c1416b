# `find_package(pipewright)` after `cmake --install build`: headers, libraries, program, CMake files.
include(CMakePackageConfigHelpers)
set(pipewright_installed pipewright_core pipewright_all)
if(PIPEWRIGHT_TORCH)
  list(APPEND pipewright_installed pipewright_engine pipewright_libtorch)
endif()
install(TARGETS ${pipewright_installed} EXPORT pipewright_targets)
install(TARGETS pipewright_program)
if(PIPEWRIGHT_TORCH)
  install(TARGETS pipewright_engine_program)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/pipewright DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pipewright)
install(EXPORT pipewright_targets NAMESPACE pipewright:: FILE pipewright-targets.cmake
        DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/pipewright-config.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/pipewright-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/pipewright-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/pipewright-config.cmake
              ${PROJECT_BINARY_DIR}/cmake/pipewright-config-version.cmake
        DESTINATION ${package_dir})
