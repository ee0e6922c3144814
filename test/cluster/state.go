package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
)

// SaveState copies what etcd has at one instant into a directory that does not exist yet, as a backup of the cluster's
// objects does. Nodes and pods go on.
func (c *Cluster) SaveState(ctx context.Context, steps Steps, dir string) error {
	return c.withoutControlPlane(ctx, steps, "save state", func() error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(c.path("etcd")))
	}, nil)
}

// RestoreState puts etcd back to what SaveState has copied. All that came to the objects since is forgotten; what is on
// the nodes is not. Revisions go on from the newest, and those before are compacted, as etcdutl --bump-revision does it:
// kubelets and proxies, which watch from a revision that would be in the future, would miss all up to that.
func (c *Cluster) RestoreState(ctx context.Context, steps Steps, dir string) error {
	var etcd *etcdClient
	var newest int64
	replace := func() error {
		if _, err := os.Stat(dir); err != nil {
			return err
		}
		if err := os.RemoveAll(c.path("etcd")); err != nil {
			return err
		}
		return os.CopyFS(c.path("etcd"), os.DirFS(dir))
	}
	if err := c.Load(); err != nil {
		return err
	}
	err := steps.Do(ctx, "newest revision", func(ctx context.Context, _ progress) (said string, err error) {
		if etcd, err = c.newEtcdClient(); err != nil {
			return "", err
		}
		newest, err = etcd.revision(ctx)
		return strconv.FormatInt(newest, 10), err
	})
	if err != nil {
		return err
	}
	return c.withoutControlPlane(ctx, steps, "restore state", replace, func() error { return etcd.advance(ctx, newest) })
}

// withoutControlPlane stops the control plane, last what others need, and starts it again in the order in which it began.
// With etcd alone it calls began, if that is not nil.
func (c *Cluster) withoutControlPlane(ctx context.Context, steps Steps, what string, do, began func() error) error {
	if err := c.Load(); err != nil {
		return err
	}
	all, err := c.components()
	if err != nil {
		return err
	}
	daemons := map[string]component{}
	for _, d := range all {
		daemons[d.name] = d
	}
	order := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	return steps.Do(ctx, what, func(ctx context.Context, _ progress) (string, error) {
		for _, name := range slices.Backward(order) {
			if err := c.stop(ctx, name, stopGrace); err != nil {
				return "", err
			}
		}
		failed := do()
		for _, name := range order {
			if _, err := c.start(ctx, daemons[name]); err != nil {
				return "", err
			}
			if name == "etcd" && failed == nil && began != nil {
				failed = began()
			}
		}
		if failed != nil {
			return "", fmt.Errorf("%s: %w", what, failed)
		}
		return "done", nil
	})
}

// etcdClient speaks to the JSON gateway of etcd.
type etcdClient struct {
	address string
	http    *http.Client
}

func (c *Cluster) newEtcdClient() (*etcdClient, error) {
	p, err := c.newProbe()
	if err != nil {
		return nil, err
	}
	transport := p.client.Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives = false // many small requests
	return &etcdClient{"https://" + c.controlAddress() + ":2379/v3/kv/", &http.Client{Transport: transport, Timeout: p.client.Timeout}}, nil
}

const bumpKey = "YnVtcA==" // bump, in base64 as the gateway has keys

func (e *etcdClient) revision(ctx context.Context) (int64, error) {
	return e.call(ctx, "range", map[string]any{"key": bumpKey})
}

// advance makes revisions until they are past the newest, and compacts those before.
func (e *etcdClient) advance(ctx context.Context, newest int64) error {
	for at := int64(0); at <= newest; {
		var err error
		if at, err = e.call(ctx, "put", map[string]any{"key": bumpKey}); err != nil {
			return err
		}
	}
	at, err := e.call(ctx, "deleterange", map[string]any{"key": bumpKey})
	if err == nil {
		_, err = e.call(ctx, "compaction", map[string]any{"revision": strconv.FormatInt(at, 10)})
	}
	return err
}

// call returns the revision after it.
func (e *etcdClient) call(ctx context.Context, method string, body any) (int64, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	said, err := call(ctx, e.http, http.MethodPost, e.address+method, bytes.NewReader(data))
	if err != nil {
		return 0, fmt.Errorf("etcd, %s: %w", method, err)
	}
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		}
	}
	if err := json.Unmarshal(said, &answer); err != nil {
		return 0, fmt.Errorf("etcd, %s: %w", method, err)
	}
	return answer.Header.Revision, nil
}
