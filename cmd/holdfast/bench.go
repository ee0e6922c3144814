package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"github.com/holdfast-storage/holdfast/bench"
)

var benchCommand = command{
	name:    "bench",
	summary: "Measure how fast a storage class of any driver gives volumes to pods",
	text: `
Claims and pods are made in a namespace of its own, one at a time and many at once, and removed again. Measured is the
time from claim to Bound, from pod to Running, with a claim and without one, and from a deleted claim to the end of its
volume. The cluster's own speed is in all of them: what can be compared between machines is the ratio to a pod without a
claim, and two classes that are measured in the same cluster.

  holdfast bench --storage-class holdfast
  holdfast bench --storage-class csi-hostpath-sc --at-once 1,100 --repeat 100 --output json
`,
	prepare: func(flags *flag.FlagSet) func(context.Context, io.Writer) error {
		b := &benchmark{logging: logFlags(flags), kubectl: kubectlFlags(flags), size: resource.QuantityValue{Quantity: resource.MustParse("64Mi")}}
		b.config.AtOnce = []int{1, 20, 100}
		flags.StringVar(&b.config.StorageClass, "storage-class", "", "`name` of the class to measure")
		flags.Var((*numbers)(&b.config.AtOnce), "at-once", "a round for each of these `numbers` of volumes at once")
		flags.IntVar(&b.config.Repeat, "repeat", 10, "how often the round of one volume runs, a `number`; of 100 there is a p99")
		flags.Var(&b.size, "size", "`size` of the claims")
		flags.StringVar(&b.config.Image, "image", "busybox:1", "`image` of the pods; it must have sh and sleep, and is pulled where it is not present")
		flags.StringVar(&b.config.Node, "node", "", "`name` of the node that all pods run on; the scheduler decides if empty")
		flags.DurationVar(&b.config.Timeout, "timeout", 5*time.Minute, "how long each step of a round may take, a `duration`")
		flags.StringVar(&b.output, "output", "table", "`format` of the result: table or json")
		return b.run
	},
}

// numbers is a flag such as 1,20,100.
type numbers []int

func (n *numbers) String() string {
	words := make([]string, len(*n))
	for i, number := range *n {
		words[i] = strconv.Itoa(number)
	}
	return strings.Join(words, ",")
}

func (n *numbers) Set(s string) error {
	*n = nil
	for word := range strings.SplitSeq(s, ",") {
		number, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return fmt.Errorf("%q is no whole number; give numbers with commas between, such as 1,20,100", word)
		}
		*n = append(*n, number)
	}
	return nil
}

type benchmark struct {
	*logging
	*kubectl
	config bench.Config
	size   resource.QuantityValue
	output string
}

func (b *benchmark) run(ctx context.Context, out io.Writer) error {
	write, ok := map[string]func(*bench.Result, io.Writer) error{"table": (*bench.Result).Table, "json": (*bench.Result).JSON}[b.output]
	if !ok {
		return fmt.Errorf("--output %q: it must be table or json: %w", b.output, errUsage)
	}
	var err error
	if b.config.Log, err = b.logger(); err != nil {
		return err
	}
	b.config.Size, b.config.Version = b.size.Quantity, version
	// The flags come before the cluster: what is wrong with them is told without one.
	run, err := bench.New(b.config)
	if err != nil {
		return fmt.Errorf("bench: %w: %w", err, errUsage)
	}
	if run.Client, err = b.client(); err != nil {
		return err
	}
	result, err := run.Run(ctx)
	if result != nil {
		err = errors.Join(err, write(result, out))
	}
	// A second signal ends the removal too.
	removing, stop := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return errors.Join(err, run.Close(removing))
}

// client limits no requests, for the limit would be what is measured.
func (b *benchmark) client() (kubernetes.Interface, error) {
	config, err := b.connection()
	if err != nil {
		return nil, err
	}
	config.QPS, config.UserAgent = -1, "holdfast-bench/"+version
	return kubernetes.NewForConfig(inProtobuf(config))
}
