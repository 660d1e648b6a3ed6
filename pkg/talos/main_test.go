// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/emptypb"
)

type emptyMessage = emptypb.Empty

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
