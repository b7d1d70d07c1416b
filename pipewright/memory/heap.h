#pragma once

namespace pipewright {

/// Lets malloc keep what is freed, up to a gigabyte an arena, for a program that trains: every step
/// takes and frees the same tensors, and glibc gives their pages back to the kernel, which clears
/// them and hands them out again. For the whole process, so the program's to call, first in main;
/// MALLOC_ variables that are set go first. Does nothing where the C library is another.
void keep_freed_memory();

}  // namespace pipewright
