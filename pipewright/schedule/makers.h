#pragma once

#include "pipewright/schedule/schedule.h"

namespace pipewright {

// One file each, with its drawing. The spec's sizes are checked and its chunks filled in before the
// call; a maker writes placement and lists, make_schedule() the rest.
Program make_gpipe(const ScheduleSpec& spec);
Program make_1f1b(const ScheduleSpec& spec);
Program make_eager_1f1b(const ScheduleSpec& spec);
Program make_interleaved_1f1b(const ScheduleSpec& spec);
Program make_zb_h1(const ScheduleSpec& spec);
Program make_zb_h2(const ScheduleSpec& spec);
Program make_zb_v(const ScheduleSpec& spec);
Program make_forward_only(const ScheduleSpec& spec);
Program make_continuing(const ScheduleSpec& spec);

/// Stage s on rank s mod ranks: the placement of all but zb-v.
std::vector<int> looped_placement(int ranks, int chunks);

}  // namespace pipewright
