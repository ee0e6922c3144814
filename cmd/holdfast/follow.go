//go:build linux && !client

package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// follow sets the level of the log as the StorageCluster has spec.debug, and sends traces where spec.traces
// says, at once. The level of --log-level is the minimum. Without the right to watch, or without the kind, that level
// stays. The part starts the watch, unless it runs already.
func (l *logging) follow(watches holdfast.SharedInformerFactory, log *slog.Logger) (part, error) {
	informer := watch.ToTypedStorageClusterInformer(watches.Holdfast().V1beta1().StorageClusters()).TypedInformer()
	look := func() {
		served := cmp.Or(v1beta1.Served(kube.AllIn[*v1beta1.StorageCluster](informer.GetStore())), &v1beta1.StorageCluster{})
		l.set(served.Spec.Debug, served.Spec.Traces, log)
	}
	_, err := informer.AddTypedEventHandler(watch.StorageClusterHandlerFuncs{
		AddFunc:    func(*v1beta1.StorageCluster) { look() },
		UpdateFunc: func(_, _ *v1beta1.StorageCluster) { look() },
		DeleteFunc: func(watch.DeletedStorageCluster) { look() },
	})
	if err != nil {
		return nil, err
	}
	var failed sync.Once // a watch is retried all the time
	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			failed.Do(func() {
				log.Warn("the StorageClusters cannot be watched, so spec.debug and spec.traces have no effect; trying again", "error", err)
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		watches.StartWithContext(ctx)
		l.traces.Run(ctx, log)
		return nil
	}, nil
}

// followFiles does the same by the files debug and traces, keys of the node's ConfigMap: a StorageCluster changes too
// often for each node to watch it.
func (l *logging) followFiles(dir string, log *slog.Logger) part {
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // none, of an earlier release, is neither
		return strings.TrimSpace(string(text))
	}
	return func(ctx context.Context) error {
		go l.traces.Run(ctx, log)
		wait.UntilWithContext(ctx, func(context.Context) { l.set(read("debug") == "true", read("traces"), log) }, followEvery)
		return nil
	}
}

// followEvery is how often these files are read. The kubelet writes them within about a minute.
const followEvery = 10 * time.Second

// set switches the log level between the configured one and debug, and sends traces to a collector or to none.
func (l *logging) set(debug bool, traces string, log *slog.Logger) {
	if l.traces.SendTo(traces) {
		log.Info("traces are sent elsewhere", "collector", traces)
	}
	level := l.floor
	if debug {
		level = min(level, slog.LevelDebug)
	}
	if l.level.Level() != level {
		log.Info("the log level changes", "level", level.String(), "debug", debug)
		l.level.Set(level)
	}
}
