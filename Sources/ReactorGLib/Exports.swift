// `import ReactorGLib` also imports GLib.
@_exported public import CReactorGLib
