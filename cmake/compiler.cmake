# Warnings and sanitizers for every target of this project (not for those who link it).
add_library(pipewright_compiler INTERFACE)
target_compile_options(pipewright_compiler INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                                     -Woverloaded-virtual)
option(PIPEWRIGHT_WERROR "Treat warnings as errors" OFF)
if(PIPEWRIGHT_WERROR)
  target_compile_options(pipewright_compiler INTERFACE -Werror)
endif()
if(PIPEWRIGHT_SANITIZE)
  add_compile_options(-fsanitize=${PIPEWRIGHT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${PIPEWRIGHT_SANITIZE})
endif()
