import CReactorLibcurl
import Glibc
import Reactor

// libcurl's callbacks of one transfer. Their context is the ``RunningTransfer``, which owns the handle.

extension RunningTransfer {
    static var callbacks: reactor_curl_callbacks {
        unsafe reactor_curl_callbacks(
            header: { bytes, _, count, context in
                let line = unsafe Array(UnsafeRawBufferPointer(start: bytes, count: count))
                return runningTransfer(context).takeHeadLine(line) ? count : count + 1
            },
            body: { bytes, _, count, context in
                runningTransfer(context).takeBody(
                    unsafe UnsafeRawBufferPointer(start: bytes, count: count).bytes)
            },
            upload: uploadCallback, seek: seekCallback,
            resolve: { _, _, context in
                runningTransfer(context).beginConnecting()
                return 0
            },
            open: { context, _, address in
                let socket = unsafe reactor_curl_open(address)
                runningTransfer(context).connects(with: socket, socket < 0 ? errno : 0)
                return socket
            },
            connected: { context, _, _, _, _ in
                runningTransfer(context).hasConnected() ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT
            })
    }
}

/// `@safe`: only the callbacks above call it, with the context that was set for them.
@safe
private func runningTransfer(_ context: UnsafeMutableRawPointer?) -> RunningTransfer {
    unsafe CallbackContext.object(context)
}

private let uploadCallback: curl_read_callback = { buffer, size, count, context in
    var span = unsafe UnsafeMutableRawBufferPointer(start: buffer, count: size * count).mutableBytes
    return runningTransfer(context).fillUpload(&span)
}

private let seekCallback: curl_seek_callback = { context, offset, origin in
    let isStart = offset == 0 && origin == SEEK_SET
    return isStart && runningTransfer(context).rewindUpload() ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_FAIL
}
