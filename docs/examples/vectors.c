/* rlzoo's test vectors in plain C: cc -O2 vectors.c -lm -o vectors && ./vectors ../vectors/v1
   The functions are ours; put yours in their place. A file has a case per line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64
static char line[1 << 16];
static double worst;

/* The numbers of "key": a number, a row or a table; returns how many. */
static int get(const char *key, double *out) {
    char name[64];
    int n = 0, depth = 0;
    snprintf(name, sizeof name, "\"%s\": ", key);
    char *p = strstr(line, name), *end;
    if (!p) { fprintf(stderr, "no %s in %s\n", key, line); exit(1); }
    p += strlen(name);
    do {
        if (*p == '[') depth++, p++;
        else if (*p == ']') depth--, p++;
        else if (*p == ',' || *p == ' ') p++;
        else out[n++] = strtod(p, &end), p = end;
    } while (depth);
    return n;
}
static double number(const char *key) { double x[MOST]; get(key, x); return x[0]; }
static void check(const char *key, const double *found) {
    double right[MOST];
    int n = get(key, right);
    for (int i = 0; i < n; i++) worst = fmax(worst, fabs(found[i] - right[i]));
}

static void gae(int rows, int steps, const double *m) {
    double r[MOST], v[MOST], end[MOST], a[MOST] = {0}, target[MOST] = {0};
    double gamma = number("gamma"), lam = number("lam");
    get("rewards", r), get("values", v), get("bootstrap_values", end);
    for (int i = 0; i < rows; i++) {
        double last = 0, after = end[i];
        for (int k = (i + 1) * steps - 1; k >= i * steps; k--)
            if (m[k]) { /* an observation is stepped over */
                last = r[k] + gamma * after - v[k] + gamma * lam * last;
                after = v[k], a[k] = last, target[k] = last + v[k];
            }
    }
    check("advantages", a), check("returns", target);
}
static void clip(int n, const double *m) {
    double p[MOST], old[MOST], adv[MOST], loss[MOST] = {0}, slope[MOST] = {0};
    double low = 1 - number("clip_low"), high = 1 + number("clip_high");
    get("log_probs", p), get("old_log_probs", old), get("advantages", adv);
    for (int k = 0; k < n; k++) {
        double ratio = exp(p[k] - old[k]), a = ratio * adv[k];
        double b = fmin(fmax(ratio, low), high) * adv[k];
        loss[k] = -fmin(a, b) * m[k], slope[k] = a <= b ? -a * m[k] : 0;
    }
    check("loss", loss), check("gradient", slope);
}
static void whiten(int n, const double *m) {
    double x[MOST], out[MOST], count = 0, mean = 0, var = 0;
    get("x", x);
    for (int k = 0; k < n; k++) count += m[k], mean += m[k] * x[k];
    mean /= count;
    for (int k = 0; k < n; k++) var += m[k] * (x[k] - mean) * (x[k] - mean);
    var /= count - number("ddof");
    for (int k = 0; k < n; k++) out[k] = m[k] * (x[k] - mean) / sqrt(var + number("eps"));
    check("whitened", out);
}
static void kl(int n, const double *m) {
    double p[MOST], ref[MOST], out[4][MOST];
    get("log_probs", p), get("ref_log_probs", ref);
    for (int k = 0; k < n; k++) {
        double x = p[k] - ref[k];
        out[0][k] = m[k] * x, out[1][k] = m[k] * x * x / 2;
        out[2][k] = m[k] * (exp(-x) - 1 + x), out[3][k] = m[k] * (1 - exp(-x));
    }
    check("k1", out[0]), check("k1_gradient", m), check("k2", out[1]);
    check("k2_gradient", out[0]), check("k3", out[2]), check("k3_gradient", out[3]);
}

int main(int argc, char **argv) {
    const char *files[] = {"gae", "clip", "whiten", "kl"};
    for (int f = 0; argc > 1 && f < 4; f++) {
        snprintf(line, sizeof line, "%s/%s.json", argv[1], files[f]);
        FILE *file = fopen(line, "r");
        if (!file) { perror(line); return 1; }
        while (fgets(line, sizeof line, file)) {
            double m[MOST];
            if (!strstr(line, "\"inputs\"")) continue;
            int n = get("response_mask", m), steps = 6;
            worst = 0;
            if (f == 0) gae(n / steps, steps, m);
            if (f == 1) clip(n, m);
            if (f == 2) whiten(n, m);
            if (f == 3) kl(n, m);
            printf("%s %s: off by %.1e\n", worst <= 1e-12 ? "passed" : "FAILED", files[f], worst);
            if (!(worst <= 1e-12)) return 1;
        }
        fclose(file);
    }
    return 0;
}
