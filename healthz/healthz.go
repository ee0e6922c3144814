// Package healthz serves /livez and /readyz with named checks, in the format of the API server of Kubernetes. It gives
// them the same meaning in every process of Holdfast: /livez fails if a restart would help, /readyz while the process
// cannot do its work.
package healthz

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// limit is the time for all checks of a request, less than the timeout of the pods' probes.
const limit = 5 * time.Second

// Checks are the checks of one process. Add all of them before the first request. Why one fails is shown to clients of this
// host alone: it may name a user and the monitors of a Ceph cluster.
type Checks struct {
	Log   *slog.Logger // logs checks that start to fail or pass; nil discards
	live  []*check
	ready []*check
}

// check fails while run returns an error. run must return when its context ends.
type check struct {
	name   string
	run    func(context.Context) error
	failed atomic.Bool
}

// Live adds a check to /livez. It may fail only if a restart of this process would help, so never because of another
// process.
func (c *Checks) Live(name string, run func(context.Context) error) {
	c.live = append(c.live, &check{name: name, run: run})
}

// Ready adds a check to /readyz. It fails while the process cannot do its work.
func (c *Checks) Ready(name string, run func(context.Context) error) {
	c.ready = append(c.ready, &check{name: name, run: run})
}

// ping is the first check of both paths. It always passes: the process answers.
var ping = &check{name: "ping", run: func(context.Context) error { return nil }}

// Handler serves /livez and /readyz, and each check alone at /livez/NAME and /readyz/NAME.
func (c *Checks) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, added := range map[string]*[]*check{"livez": &c.live, "readyz": &c.ready} {
		all := func() []*check { return append([]*check{ping}, *added...) }
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, path, all()) })
		mux.HandleFunc("GET /"+path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
			checks := all()
			i := slices.IndexFunc(checks, func(one *check) bool { return one.name == r.PathValue("name") })
			if i < 0 {
				http.NotFound(w, r)
				return
			}
			c.serve(w, r, path, checks[i:i+1])
		})
	}
	return mux
}

func (c *Checks) serve(w http.ResponseWriter, r *http.Request, path string, checks []*check) {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	var list strings.Builder
	passed := true
	for _, one := range checks {
		err := one.run(ctx)
		if r.Context().Err() != nil {
			return // the client is gone; that is not a failure of the check
		}
		if err == nil {
			fmt.Fprintf(&list, "[+]%s ok\n", one.name)
		} else {
			passed = false
			reason := "the reason is in the log, and shown to clients of localhost"
			if isLocal(r) {
				reason = strings.ReplaceAll(err.Error(), "\n", "; ")
			}
			fmt.Fprintf(&list, "[-]%s failed: %s\n", one.name, reason)
		}
		c.log(path, one, err)
	}
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	switch {
	case !passed:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", &list, path)
	case r.URL.Query().Has("verbose"):
		fmt.Fprintf(w, "%s%s check passed\n", &list, path)
	default:
		fmt.Fprint(w, "ok")
	}
}

func isLocal(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// log logs changes only: probes run every few seconds.
func (c *Checks) log(path string, one *check, err error) {
	if c.Log == nil || one.failed.Swap(err != nil) == (err != nil) {
		return
	}
	if err != nil {
		c.Log.Warn("a check fails", "path", "/"+path, "check", one.name, "error", err)
	} else {
		c.Log.Info("a check passes again", "path", "/"+path, "check", one.name)
	}
}
