#pragma once

namespace pipewright::bench {

/// Seconds for which the host of a virtual machine ran something else on this machine's cores while
/// they had work, all cores together, since it started (Linux: steal of /proc/stat, to hundredths).
/// 0 where nobody says.
double stolen_seconds();

}  // namespace pipewright::bench
