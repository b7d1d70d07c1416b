# LibTorch as one target, pipewright_libtorch: Debian's, or the one CMAKE_PREFIX_PATH names.
find_package(Torch REQUIRED)
add_library(pipewright_libtorch INTERFACE)
set_target_properties(pipewright_libtorch PROPERTIES EXPORT_NAME libtorch)
target_link_libraries(pipewright_libtorch INTERFACE ${TORCH_LIBRARIES})
# Its headers are not ours to warn about.
target_include_directories(pipewright_libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(pipewright_libtorch INTERFACE ${torch_flags})
if(TARGET torch_cuda)
  set(PIPEWRIGHT_CUDA_EXCLUDES "/no_cuda\\.cpp$")
else()
  set(PIPEWRIGHT_CUDA_EXCLUDES "/cuda\\.cpp$")
endif()
