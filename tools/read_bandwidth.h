// The machine's read bandwidth: the roof of decoding, which reads every weight once a step.
#ifndef QUIRE_TOOLS_READ_BANDWIDTH_H_
#define QUIRE_TOOLS_READ_BANDWIDTH_H_

namespace quire {

// Bytes per second that `threads` threads (0: one for each core) read from 256 MiB of memory, best
// of five runs: the second core of small machines comes and goes.
double MeasureReadBandwidth(int threads);

}  // namespace quire

#endif  // QUIRE_TOOLS_READ_BANDWIDTH_H_
