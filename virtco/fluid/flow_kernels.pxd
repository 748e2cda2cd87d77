# Fields and C functions; see flow_kernels.py.

cdef class Flows:
    cdef readonly double now_s
    cdef public bint is_rated
    cdef readonly Py_ssize_t n_left
    cdef readonly double[::1] left, sent, stuck, rate, end_s, in_class, n_live, level
    cdef public double[::1] guarantee, ceil, weight
    cdef public long long[::1] rank
    cdef public unsigned char[::1] is_free
    cdef readonly unsigned char[::1] is_live
    cdef bint over_tcp, in_order
    cdef Py_ssize_t n_flows, n_links
    cdef double next_start_s
    cdef double[::1] cap, start_s
    cdef long long[::1] src, dst, of
    # Scratch.
    cdef double[::1] wish, pace, load, room, price
    cdef double[::1] n_to, n_bound

cdef void clear(double[::1] column) noexcept
cdef void add_up(Flows flows) noexcept
cdef void find_live(Flows flows) noexcept
cdef void share_by_rank(Flows flows) noexcept
cdef void fill(Flows flows) noexcept
cdef void share_over_tcp(Flows flows) noexcept
cdef double level_at(Flows flows, Py_ssize_t p) noexcept
cdef void share_as_tcp(Flows flows) noexcept
