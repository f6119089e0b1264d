#include "codegen/cuda/special_function_model.h"

#include <bit>
#include <cstdint>

namespace quire {
namespace {

constexpr int kFractionBits = 23;
constexpr uint32_t kSign = 0x80000000u, kInfinity = 0x7f800000u, kNan = 0x7fffffffu;

// In units of 2^-2, 2^-15 and 2^-15 of a result's last place, of c0, c1 t and c2 s.
struct Part {
  int32_t c0, c1, c2;
};

constexpr Part kExp2[64] = {
    {33554435, 22713, 494}, {33919818, 22960, 501}, {34289182, 23210, 506}, {34662565, 23463, 511},
    {35040018, 23718, 518}, {35421577, 23977, 521}, {35807292, 24238, 527}, {36197209, 24502, 532},
    {36591372, 24768, 541}, {36989825, 25038, 546}, {37392616, 25311, 551}, {37799797, 25586, 559},
    {38211409, 25865, 564}, {38627504, 26147, 568}, {39048131, 26431, 577}, {39473337, 26719, 583},
    {39903173, 27010, 589}, {40337690, 27304, 596}, {40776937, 27602, 600}, {41220970, 27902, 609},
    {41669836, 28206, 615}, {42123592, 28513, 622}, {42582286, 28824, 627}, {43045977, 29138, 633},
    {43514717, 29455, 641}, {43988561, 29776, 647}, {44467565, 30100, 655}, {44951786, 30428, 661},
    {45441278, 30759, 670}, {45936101, 31094, 677}, {46436314, 31432, 686}, {46941971, 31775, 691},
    {47453135, 32121, 699}, {47969867, 32471, 705}, {48492225, 32824, 715}, {49020269, 33182, 721},
    {49554065, 33543, 730}, {50093674, 33908, 739}, {50639159, 34277, 748}, {51190582, 34651, 753},
    {51748011, 35028, 763}, {52311510, 35409, 773}, {52881146, 35795, 779}, {53456983, 36185, 787},
    {54039091, 36579, 796}, {54627538, 36977, 806}, {55222393, 37380, 813}, {55823725, 37787, 822},
    {56431607, 38198, 833}, {57046106, 38614, 842}, {57667297, 39035, 849}, {58295254, 39460, 858},
    {58930048, 39889, 870}, {59571754, 40324, 877}, {60220447, 40763, 887}, {60876205, 41207, 896},
    {61539104, 41655, 909}, {62209220, 42109, 917}, {62886634, 42568, 925}, {63571424, 43031, 938},
    {64263672, 43500, 946}, {64963458, 43973, 959}, {65670863, 44452, 969}, {66385972, 44936, 980},
};

// Of c1 the negative.
constexpr Part kReciprocal[128] = {
    {67108864, 65534, 1013}, {66588642, 64522, 989}, {66076422, 63533, 966}, {65572021, 62567, 945},
    {65075262, 61622, 923},  {64585976, 60699, 902}, {64103992, 59797, 883}, {63629146, 58914, 863},
    {63161284, 58051, 845},  {62700254, 57207, 827}, {62245905, 56381, 809}, {61798091, 55572, 791},
    {61356677, 54781, 774},  {60921524, 54007, 758}, {60492499, 53249, 742}, {60069474, 52507, 727},
    {59652325, 51780, 711},  {59240930, 51068, 696}, {58835170, 50371, 682}, {58434930, 49688, 669},
    {58040099, 49019, 656},  {57650569, 48363, 642}, {57266231, 47721, 631}, {56886986, 47091, 618},
    {56512729, 46473, 605},  {56143366, 45868, 594}, {55778798, 45274, 582}, {55418934, 44692, 572},
    {55063686, 44121, 561},  {54712961, 43560, 549}, {54366677, 43011, 540}, {54024747, 42471, 529},
    {53687093, 41942, 519},  {53353633, 41423, 510}, {53024288, 40913, 501}, {52698987, 40412, 490},
    {52377651, 39921, 482},  {52060212, 39439, 474}, {51746596, 38965, 465}, {51436737, 38500, 457},
    {51130565, 38043, 449},  {50828017, 37594, 441}, {50529029, 37153, 433}, {50233538, 36720, 426},
    {49941482, 36294, 418},  {49652803, 35876, 412}, {49367442, 35464, 403}, {49085342, 35060, 397},
    {48806449, 34663, 390},  {48530705, 34272, 383}, {48258060, 33888, 377}, {47988464, 33511, 371},
    {47721861, 33140, 366},  {47458204, 32774, 358}, {47197444, 32415, 353}, {46939534, 32062, 348},
    {46684429, 31714, 341},  {46432082, 31373, 337}, {46182446, 31036, 331}, {45935480, 30705, 326},
    {45691143, 30379, 320},  {45449392, 30059, 316}, {45210185, 29743, 310}, {44973481, 29432, 305},
    {44739244, 29127, 302},  {44507436, 28826, 297}, {44278016, 28529, 291}, {44050948, 28237, 287},
    {43826199, 27950, 283},  {43603730, 27667, 279}, {43383510, 27388, 274}, {43165503, 27114, 271},
    {42949675, 26843, 266},  {42735995, 26577, 263}, {42524430, 26314, 258}, {42314950, 26056, 256},
    {42107525, 25801, 251},  {41902122, 25550, 248}, {41698714, 25302, 243}, {41497270, 25058, 240},
    {41297764, 24818, 237},  {41100168, 24581, 233}, {40904453, 24348, 231}, {40710593, 24117, 226},
    {40518561, 23890, 223},  {40328333, 23667, 222}, {40139883, 23446, 218}, {39953186, 23228, 214},
    {39768218, 23014, 212},  {39584955, 22802, 208}, {39403371, 22593, 205}, {39223448, 22388, 204},
    {39045159, 22184, 199},  {38868484, 21984, 197}, {38693401, 21787, 196}, {38519888, 21592, 193},
    {38347924, 21399, 189},  {38177489, 21209, 186}, {38008563, 21022, 184}, {37841123, 20837, 182},
    {37675154, 20655, 180},  {37510633, 20475, 178}, {37347543, 20297, 175}, {37185866, 20122, 173},
    {37025582, 19949, 171},  {36866673, 19778, 169}, {36709124, 19609, 166}, {36552915, 19443, 165},
    {36398030, 19278, 161},  {36244452, 19116, 160}, {36092164, 18956, 159}, {35941151, 18797, 155},
    {35791396, 18641, 154},  {35642884, 18487, 153}, {35495599, 18334, 150}, {35349528, 18184, 149},
    {35204652, 18035, 147},  {35060959, 17888, 145}, {34918436, 17743, 143}, {34777064, 17600, 143},
    {34636835, 17458, 140},  {34497732, 17318, 138}, {34359741, 17180, 137}, {34222849, 17043, 135},
    {34087044, 16908, 133},  {33952313, 16775, 132}, {33818641, 16643, 131}, {33686019, 16513, 130},
};

// The square of `t` of `bits` bits, 15 bits of it: of the partial products, those of lower places
// are left out.
int64_t CutSquare(int64_t t, int bits) {
  const int cut = 2 * bits - 15;
  int64_t square = 0;
  for (int i = 0; i < bits; ++i) {
    if ((t >> i & 1) == 0) continue;
    if (2 * i >= cut) square += int64_t{1} << 2 * i;
    // With the bits above, each pair once.
    const int lowest = i + 1 > cut - 1 - i ? i + 1 : cut - 1 - i;
    square += (t >> lowest << lowest) << (i + 1);
  }
  return square >> cut;
}

// 24 bits, or 2^24.
template <int kParts>
int64_t Interpolated(const Part (&parts)[kParts], int sign, int64_t rounding, int64_t fraction) {
  constexpr int kBits = kFractionBits - std::countr_zero(static_cast<unsigned>(kParts));
  const Part& part = parts[fraction >> kBits];
  const int64_t t = fraction & ((int64_t{1} << kBits) - 1);
  return ((int64_t{part.c0} << 13) + rounding + sign * part.c1 * t +
          part.c2 * CutSquare(t, kBits)) >>
         15;
}

// 2^exponent times `significand`, which has 24 bits or is 2^24; what is subnormal is zero.
float Number(int64_t significand, int exponent) {
  const int carry = static_cast<int>(significand >> (kFractionBits + 1));
  const int biased = exponent + carry + 127;
  if (biased <= 0) return 0;
  if (biased >= 255) return std::bit_cast<float>(kInfinity);
  const auto fraction = static_cast<uint32_t>(significand >> carry) & 0x7fffffu;
  return std::bit_cast<float>(static_cast<uint32_t>(biased) << kFractionBits | fraction);
}

}  // namespace

float CudaExp2(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & ~kSign;
  if (magnitude > kInfinity) return std::bit_cast<float>(kNan);
  const bool negative = (bits & kSign) != 0;
  const int exponent = static_cast<int>(magnitude >> kFractionBits) - 127;
  if (exponent < -126) return 1;  // subnormal numbers are zero
  if (exponent >= 8) return negative ? 0 : std::bit_cast<float>(kInfinity);
  // 23 bits after the point, the rest cut; of a negative number their complement, where they are
  // not all zero.
  const int64_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  const int64_t fixed = exponent >= 0     ? significand << exponent
                        : exponent >= -23 ? significand >> -exponent
                                          : 0;
  const bool is_integer = (fixed & 0x7fffff) == 0;
  const int64_t point = !negative ? fixed : is_integer ? -fixed : ~fixed;
  return Number(Interpolated(kExp2, 1, 6114, point & 0x7fffff),
                static_cast<int>(point >> kFractionBits));
}

float CudaNearReciprocal(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & ~kSign, sign = bits & kSign;
  const auto signed_as_x = [&](float y) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(y) | sign);
  };
  if (magnitude > kInfinity) return std::bit_cast<float>(kNan);
  if (magnitude == kInfinity) return signed_as_x(0);
  const int exponent = static_cast<int>(magnitude >> kFractionBits) - 127;
  if (exponent < -126) return signed_as_x(std::bit_cast<float>(kInfinity));
  return signed_as_x(
      Number(Interpolated(kReciprocal, -1, 2023, magnitude & 0x7fffffu), -1 - exponent));
}

}  // namespace quire
