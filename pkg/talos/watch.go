// SPDX-License-Identifier: Apache-2.0

package talos

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// errWatchEnded is a machine that ended a watch in order: it stops serving, or its history was compacted.
var errWatchEnded = errors.New("the machine ended the watch")

// maxEvents is how many changes one message of a watch may hold. A machine that isn't asked to gather them sends one.
const maxEvents = 64

func (n *node) WatchConfiguration(ctx context.Context, changed func(hash string)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	id := config.ActiveID
	stream, err := n.reader.client.Watch(ctx, &cosi.WatchRequest{
		Namespace: config.NamespaceName, Type: config.MachineConfigType, Id: &id, Options: &cosi.WatchOptions{}, ApiVersion: 1,
	})
	for err == nil {
		var answer *cosi.WatchResponse
		if answer, err = stream.Recv(); err == nil {
			err = eachConfiguration(answer, changed)
		}
	}
	if errors.Is(err, io.EOF) {
		err = errWatchEnded
	}
	return &CallError{Address: n.channel.address, What: "watching the running configuration", Err: err}
}

// eachConfiguration reports the configurations in a message. The first message of a watch is empty, the second holds what
// is there; a machine without a configuration sends the remains of one, which is none. Source: COSI,
// pkg/state/protobuf/server (State.Watch) and pkg/state/impl/inmem/collection.go.
func eachConfiguration(answer *cosi.WatchResponse, changed func(hash string)) error {
	if len(answer.GetEvent()) > maxEvents {
		return fmt.Errorf("the machine sent %d changes at once", len(answer.GetEvent()))
	}
	for _, event := range answer.GetEvent() {
		switch event.GetEventType() {
		case cosi.EventType_CREATED, cosi.EventType_UPDATED:
			text, err := configurationBytes(event.GetResource())
			if err != nil {
				return err
			}
			sum := sha256.Sum256(text)
			changed(hex.EncodeToString(sum[:]))
		case cosi.EventType_ERRORED:
			return errWatchEnded
		}
	}
	return nil
}
