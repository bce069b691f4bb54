// Products with weights as they are held. Compiled once for each instruction set.
//
// Lanes run along depth. Each number of the output is one vector of sums, lane l those of the depths
// l, l + W, l + 2W … in order, each by one fused step; then the lanes are added in one fixed tree, then
// the bias. Narrow weights are widened exactly before. So the bits of a row depend on nothing but the
// row and the weights: not on the other rows, their number, or threads.
#include "few_rows.hpp"
#include "many_rows.hpp"

namespace REGARD_ISA {
namespace {

constexpr int64_t PIECE = 3 << 15;  // bytes of weights that an item of few rows reads

// Outputs of an item.
int64_t span(const Product &p) {
    if (p.rows > FEW) return PANELS * PANEL;
    return GROUP * most<int64_t>(1, PIECE / (GROUP * most<int64_t>(1, p.stride)));
}

// Rows of an item.
int64_t height(const Product &p) { return p.rows > FEW ? chunk(p) : p.rows; }

int64_t items(const Product &p) { return pieces(p.out, span(p)) * pieces(p.rows, height(p)); }

int64_t scratch(const Product &p) { return p.rows > FEW ? room_for_many(p) : 0; }

template <class Kind> void multiply_as(const Product &p, int64_t item, char *room) {
    const int64_t spans = pieces(p.out, span(p));
    const int64_t begin = item % spans * span(p), end = least(p.out, begin + span(p));
    const int64_t top = item / spans * height(p), bottom = least(p.rows, top + height(p));
    if (p.rows <= FEW)
        few<Kind>(p, begin, end);
    else
        many<Kind>(p, top, bottom, begin, end, room);
}

void multiply(const Product &p, int64_t item, char *room) {
    switch (p.held) {
        case Held::f16: return multiply_as<Narrow<Half>>(p, item, room);
        case Held::bf16: return multiply_as<Narrow<Brain>>(p, item, room);
        case Held::f32: return multiply_as<Floats>(p, item, room);
        case Held::q4_0: return multiply_as<Q40>(p, item, room);
        case Held::q4_1: return multiply_as<Q41>(p, item, room);
        case Held::q8_0: return multiply_as<Q80>(p, item, room);
    }
}

}  // namespace

extern const regard::Products products;
const regard::Products products = {REGARD_NAME, items, scratch, multiply};

}  // namespace REGARD_ISA
