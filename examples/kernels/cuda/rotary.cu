// Rotary positions: in every head of every token, numbers `i` and `i + planes` are turned by an
// angle of the token's position. `angles` has the cosine and the sine of each plane, for each of
// `known` positions. `direction` is 1 to turn forth, and -1 to turn back.

KERNEL(turn, 256)(
    REAL* x, const u32* positions, const REAL* angles, u64 known, u64 tokens, u64 width,
    u64 planes, double direction) {
    u64 at = element();
    u64 token = at / (width / 2);
    u64 pair = at % (width / 2);
    if (token >= tokens) return;
    u64 position = positions[token];
    if (position >= known) return;
    u64 plane = pair % planes;
    REAL cosine = angles[2 * (position * planes + plane)];
    REAL sine = (REAL)direction * angles[2 * (position * planes + plane) + 1];
    REAL* left = x + token * width + pair / planes * 2 * planes + plane;
    REAL* right = left + planes;
    REAL before[2] = {*left, *right};
    *left = before[0] * cosine - before[1] * sine;
    *right = before[1] * cosine + before[0] * sine;
}
