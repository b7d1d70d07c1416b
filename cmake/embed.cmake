# pipewright_embed(target input output): makes `output`, to be included as the body of a string constant,
# from the text file `input`, byte for byte.
function(pipewright_embed target input output)
  set(in ${CMAKE_CURRENT_SOURCE_DIR}/${input})
  set(out ${CMAKE_CURRENT_BINARY_DIR}/generated/pipewright/${output})
  add_custom_command(
    OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${in} -DOUTPUT=${out} -P ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    DEPENDS ${in} ${PROJECT_SOURCE_DIR}/cmake/embed_file.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${out})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
endfunction()
