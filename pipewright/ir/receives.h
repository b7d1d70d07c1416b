#pragma once

#include <cstddef>
#include <vector>

#include "pipewright/ir/program.h"

namespace pipewright {

/// The order in which a rank runs its list where a receive returns at once: positions in the list.
/// lower_sends() puts a receive where its send is in a walk, in which lower ranks come first: what
/// a lower rank sends meanwhile is asked for before an instruction, what a higher one sends after
/// it, and would be on its way only then. Here it is asked for before that instruction too.
///
///     rank 0   B3 . RB2 B2 . RB1 B1         as listed: gradient 2 crosses while rank 0 waits
///     rank 0   RB2 B3 . RB1 B2 . B1         as run: it crosses during B3
///     rank 1   B2 SB2 B1 SB1
std::vector<std::size_t> early_receives(const Program& program, int rank);

}  // namespace pipewright
