package ganesha

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestLog_GaneshasLevelIsKept(t *testing.T) {
	var b bytes.Buffer
	hear := logGanesha(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for line, want := range map[string]string{
		": STATE :EVENT :NFS Server Now NOT IN GRACE": `level=INFO msg="NFS-Ganesha says" part=STATE text="NFS Server Now NOT IN GRACE"`,
		": NFS STARTUP :CRIT :No export :at all":      `level=ERROR msg="NFS-Ganesha says" part="NFS STARTUP" text="No export :at all"`,
		": EXPORT :WARN :x":                           `level=WARN msg="NFS-Ganesha says" part=EXPORT text=x`,
		": RPC :F_DBG :x":                             `level=DEBUG msg="NFS-Ganesha says" part=RPC text=x`,
		": DISP :MAJ :Cannot register NFS V4 on TCP":  `level=DEBUG msg="NFS-Ganesha says" part=DISP text="Cannot register NFS V4 on TCP"`,
		"21/11/2026 20:48:08 : epoch 6b02 : vm : nfs-ganesha-27[main] main :MAIN :EVENT :Starting": `level=DEBUG msg="NFS-Ganesha says" part=MAIN text=Starting`,
		"malloc(): corrupted": `level=INFO msg="NFS-Ganesha says" part="" text="malloc(): corrupted"`,
	} {
		b.Reset()
		hear(line)
		if got := b.String(); !strings.Contains(got, want+"\n") {
			t.Errorf("%s\ngot  %swant %s", line, got, want)
		}
	}
}

func TestLog_LinesAreReadAsTheyEndAndNoneIsKeptForLong(t *testing.T) {
	var heard []string
	l := &lines{hear: func(line string) { heard = append(heard, line) }}
	for _, part := range []string{"one\ntw", "o\n\n", "  \nthree", "\nfour"} {
		check.Same(t, check.Got(l.Write([]byte(part)))(t), len(part))
	}
	check.Same(t, strings.Join(heard, "|"), "one|two|three")
	heard = nil
	for range 3 * longestLine {
		check.Got(l.Write([]byte("x")))(t)
	}
	if len(heard) < 3 || len(l.rest) > longestLine || len(heard[0]) > longestLine {
		t.Errorf("%d lines heard, %d bytes kept", len(heard), len(l.rest))
	}
}
