# LibTorch as one target, pipewright_libtorch: Debian's, or the one CMAKE_PREFIX_PATH names.
find_package(Torch REQUIRED)
add_library(pipewright_libtorch INTERFACE)
set_target_properties(pipewright_libtorch PROPERTIES EXPORT_NAME libtorch)
target_link_libraries(pipewright_libtorch INTERFACE ${TORCH_LIBRARIES})
# PyPI's LibTorch 2.x carries parts of an older C++ library (std::filesystem) and lets them be seen: a program that finds
# them there crashes in remove_all(). The machine's own must come first.
target_link_options(pipewright_libtorch INTERFACE "SHELL:-Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state")
# Its headers are not ours to warn about.
target_include_directories(pipewright_libtorch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
separate_arguments(torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(pipewright_libtorch INTERFACE ${torch_flags})
# Optional parts are pairs of files; the build takes one of each.
if(TARGET torch_cuda)
  set(left_out no_cuda)
else()
  set(left_out cuda)
endif()
# Gloo: LibTorch has it within, and its headers come apart (Debian: libgloo-dev).
find_path(PIPEWRIGHT_GLOO_INCLUDE gloo/transport/unbound_buffer.h DOC "Headers of Gloo, as old as LibTorch's")
if(PIPEWRIGHT_GLOO_INCLUDE)
  target_include_directories(pipewright_libtorch SYSTEM INTERFACE $<BUILD_INTERFACE:${PIPEWRIGHT_GLOO_INCLUDE}>)
  target_compile_definitions(pipewright_libtorch INTERFACE $<BUILD_INTERFACE:USE_C10D_GLOO>)
  list(APPEND left_out no_gloo)
else()
  list(APPEND left_out gloo)
endif()
# NCCL: LibTorch with CUDA has it within, its header comes apart (Debian: libnccl-dev, PyPI: nvidia-nccl).
if(TARGET torch_cuda)
  find_path(PIPEWRIGHT_NCCL_INCLUDE nccl.h DOC "The header of NCCL, as old as LibTorch's"
            HINTS ${TORCH_INSTALL_PREFIX}/../nvidia/nccl/include)
endif()
if(TARGET torch_cuda AND PIPEWRIGHT_NCCL_INCLUDE)
  target_include_directories(pipewright_libtorch SYSTEM INTERFACE $<BUILD_INTERFACE:${PIPEWRIGHT_NCCL_INCLUDE}>)
  target_compile_definitions(pipewright_libtorch INTERFACE $<BUILD_INTERFACE:USE_C10D_NCCL>)
  list(APPEND left_out no_nccl)
else()
  list(APPEND left_out nccl)
endif()
list(JOIN left_out "|" left_out)
set(PIPEWRIGHT_LEFT_OUT "/(${left_out})\\.cpp$")
