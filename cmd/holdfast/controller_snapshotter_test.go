package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/holdfast-storage/holdfast/deploy"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

func TestSnapshotter_FindsTheDriverWhenTheKindsOfSnapshotsExist(t *testing.T) {
	kinds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{kinds: "CustomResourceDefinitionList"})
	dir := t.TempDir()
	socket, link := filepath.Join(dir, "csi.sock"), filepath.Join(dir, "snapshotter.sock")
	for _, name := range []string{socket, link} { // the second is of a process before this one
		check.OK(t, os.WriteFile(name, []byte(name), 0o600))
	}
	c := &controller{snapshotterEndpoint: "unix://" + link}
	c.driver.Endpoint = "unix://" + socket
	shown := check.Got(c.showSnapshotter(&clients{dynamic: client}, slog.New(slog.DiscardHandler)))(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		check.Report(t, shown(ctx))
	})
	defer running.Wait()
	defer stop()

	wait.Until(t, "no way from before", func() bool { _, err := os.Lstat(link); return err != nil })
	all := deploy.SnapshotDefinitions()
	check.Got(client.Resource(kinds).Create(ctx, all[len(all)-1], metav1.CreateOptions{}))(t)
	wait.Until(t, "the way to the driver", func() bool { content, err := os.ReadFile(link); return err == nil && string(content) == socket })
}

func TestSnapshotter_HasItsOwnSocket(t *testing.T) {
	for _, endpoint := range []string{"unix:///csi/csi.sock", "csi.sock", "unix:///csi/"} {
		c := &controller{snapshotterEndpoint: endpoint}
		c.driver.Endpoint = "unix:///csi/csi.sock"
		if _, err := c.showSnapshotter(&clients{}, nil); err == nil {
			t.Errorf("%s is taken", endpoint)
		}
	}
}
