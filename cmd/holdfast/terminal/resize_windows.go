package terminal

import "os"

// resizes are none: a frame has the new size when it is drawn the next time.
var resizes []os.Signal
