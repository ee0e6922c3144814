//go:build linux

package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	holdfast "github.com/holdfast-storage/holdfast/api/client/informers"
	watch "github.com/holdfast-storage/holdfast/api/client/informers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// followDebug sets the level of the log as the StorageCluster has spec.debug, at once. The level of --log-level is the
// minimum. Without the right to watch, or without the kind, that level stays. The part starts the watch, unless it runs
// already.
func (l *logging) followDebug(watches holdfast.SharedInformerFactory, log *slog.Logger) (part, error) {
	informer := watch.ToTypedStorageClusterInformer(watches.Holdfast().V1beta1().StorageClusters()).TypedInformer()
	look := func() {
		served := v1beta1.Served(kube.AllIn[*v1beta1.StorageCluster](informer.GetStore()))
		l.debug(served != nil && served.Spec.Debug, log)
	}
	_, err := informer.AddTypedEventHandler(watch.StorageClusterHandlerFuncs{
		AddFunc:    func(*v1beta1.StorageCluster) { look() },
		UpdateFunc: func(_, _ *v1beta1.StorageCluster) { look() },
		DeleteFunc: func(watch.DeletedStorageCluster) { look() },
	})
	if err != nil {
		return nil, err
	}
	if err := informer.SetWatchErrorHandlerWithContext(loggedOnce(log, "the StorageClusters cannot be watched, so spec.debug has no effect; trying again")); err != nil {
		return nil, err
	}
	return startWatches(watches), nil
}

// followDebugFile sets the level of the log by a file with true or false, a key of the node's ConfigMap: a StorageCluster changes too
// often for each node to watch it.
func (l *logging) followDebugFile(path string, log *slog.Logger) part {
	return func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(context.Context) {
			text, _ := os.ReadFile(path) // none, of an earlier release, is not true
			l.debug(strings.TrimSpace(string(text)) == "true", log)
		}, debugEvery)
		return nil
	}
}

// debugEvery is how often that file is read. The kubelet writes it within about a minute.
const debugEvery = 10 * time.Second

// startWatches starts the requested informers that do not run yet.
func startWatches(watches holdfast.SharedInformerFactory) part {
	return func(ctx context.Context) error {
		watches.StartWithContext(ctx)
		<-ctx.Done()
		return nil
	}
}

// debug switches the log level between the configured one and debug.
func (l *logging) debug(on bool, log *slog.Logger) {
	level := l.floor
	if on {
		level = min(level, slog.LevelDebug)
	}
	if l.level.Level() != level {
		log.Info("the log level changes", "level", level.String(), "debug", on)
		l.level.Set(level)
	}
}

// loggedOnce logs only the first failure of a watch, which is retried all the time.
func loggedOnce(log *slog.Logger, message string) cache.WatchErrorHandlerWithContext {
	var logged atomic.Bool
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil && !logged.Swap(true) {
			log.Warn(message, "error", err) //nolint:sloglint // of two
		}
	}
}
